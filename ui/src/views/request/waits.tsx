// Why a request waited: how long, what it lacked, and who stood in its way meanwhile.
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { trace } from "../../app/state";
import { count, counted, duration, moment } from "../../format";
import { type Lane, WAITING } from "../../model/lane";
import type { Pause } from "../../model/pause";
import type { WaitEntry } from "../../model/records";
import type { Trace } from "../../model/trace";
import { InTheWay } from "./holders";
import { type Lack, QUESTIONS, afterOf, lackedOf, mainLack } from "./lacks";
import "./request.css";

/** The wait and the question that are unfolded: "REQUEST SINCE LACK". */
const unfolded = signal("");
const keyOf = (request: string, since: number, lack: Lack): string => `${request} ${since} ${lack}`;

/** Show who stood in the way of `lane` at `time`, if it waited then. */
export function unfoldAt(shown: Trace, lane: Lane, time: number): void {
  const row = lane.rowAt(time);
  if (row < 0 || lane.kv[row] !== WAITING) return;
  const wait = shown.waitAt(lane.id, time);
  unfolded.value = keyOf(lane.id, wait?.since ?? lane.at[row], mainLack(wait) ?? "blocks");
}
/** A result comes between two steps; its wait begins with the next, in seconds. */
const CLOSE = 0.25;

/** `after`: when a pause ended whose wait comes first. */
export function Waits({ lane, now, after = null }: { lane: Lane; now: number; after?: number | null }) {
  const shown = trace.value;
  if (!shown) return null;
  const waits = [...shown.waitsOf(lane.id), ...openWait(lane, now)];
  if (!waits.length) return <p class="small soft">It never waited for longer than a step.</p>;
  const own = after === null ? undefined : waits.find((wait) => Math.abs(wait.since - after) < CLOSE);
  const rest = waits.filter((wait) => wait !== own);
  return <>{(own ? [own, ...rest] : rest).map((wait) => <Wait key={wait.since} wait={wait} own={wait === own} />)}</>;
}

/** When a pause's result came; null while it is open. */
export const endOf = (pause: Pause): number | null => (pause.seconds === null ? null : pause.at + pause.seconds);

/** A request that waits now has no record of that yet. */
function openWait(lane: Lane, now: number): WaitEntry[] {
  const last = lane.length - 1;
  if (lane.kv[last] !== WAITING || now <= lane.at[last]) return [];
  return [{ kind: "wait", request: lane.id, since: lane.at[last], until: now, after: "" }];
}

function Wait({ wait, own }: { wait: WaitEntry; own: boolean }) {
  const lacked = lackedOf(wait.lacked);
  const asked = QUESTIONED.find((lack) => unfolded.value === keyOf(wait.request, wait.since, lack));
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (asked) place.current?.scrollIntoView({ block: "nearest" });
  }, [asked]);
  return (
    <div class="dc-wait" ref={place}>
      <div class="dc-wait-head">
        <b>{duration(wait.until - wait.since)}</b>
        <span class="muted">{[afterOf(wait.after), `at ${moment(wait.since)}`].filter(Boolean).join(", ")}</span>
        {own && <span class="chip">after this pause</span>}
      </div>
      {lacked.length > 0 && (
        <ul class="dc-lacked">
          {lacked.map(({ lack, what, steps }) => (
            <li key={what}>
              lacked {what} in {counted(steps, "step")}{wait.steps ? ` of ${count(wait.steps)}` : ""}
              {lack && <Question wait={wait} lack={lack} asked={asked === lack} />}
            </li>
          ))}
        </ul>
      )}
      <p class="small soft">{restOf(wait, lacked.length > 0)}</p>
      {!lacked.length && !wait.steps && <p><Question wait={wait} lack="blocks" asked={asked === "blocks"} /><Question wait={wait} lack="slots" asked={asked === "slots"} /></p>}
      {asked && <InTheWay wait={wait} lack={asked} />}
    </div>
  );
}

const QUESTIONED = Object.keys(QUESTIONS) as Lack[];

function Question({ wait, lack, asked }: { wait: WaitEntry; lack: Lack; asked: boolean }) {
  return (
    <button class="plain dc-ask" aria-expanded={asked} onClick={() => (unfolded.value = asked ? "" : keyOf(wait.request, wait.since, lack))}>
      {asked ? "Hide" : QUESTIONS[lack]}
    </button>
  );
}

function restOf(wait: WaitEntry, lacked: boolean): string {
  const parts: string[] = [];
  if (typeof wait.needed_blocks === "number") {
    const free = typeof wait.free_blocks === "number" ? `, ${count(wait.free_blocks)} were free` : "";
    parts.push(`When it last did not fit, it needed ${counted(wait.needed_blocks, "block")}${free}.`);
  }
  if (wait.overtaken) parts.push(`In ${counted(wait.overtaken, "step")} a request that is ranked behind it ran first.`);
  if (!lacked && wait.steps) parts.push("It was not looked at: others stood before it in the queue.");
  if (!lacked && !wait.steps) parts.push("What it lacks is recorded when it has stopped waiting.");
  return parts.join(" ");
}
