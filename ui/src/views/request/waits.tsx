// Why a request waited: how long, what it lacked, and who held the blocks meanwhile.
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { link } from "../../app/router";
import { trace } from "../../app/state";
import { brief, count, counted, duration, moment, number, percent } from "../../format";
import { type Lane, STATES, WAITING } from "../../model/lane";
import type { Pause } from "../../model/pause";
import type { WaitEntry } from "../../model/records";
import type { Trace } from "../../model/trace";
import { STATE_NAMES } from "../timeline/shape";
import { type Blocker, blockers, mainState } from "./blockers";
import { afterOf, lackedOf } from "./lacks";
import "./request.css";

/** The wait that is unfolded: "REQUEST SINCE". */
const unfolded = signal("");
const keyOf = (request: string, since: number): string => `${request} ${since}`;

/** Show who held blocks during the wait of `lane` at `time`, if it waited then. */
export function unfoldAt(shown: Trace, lane: Lane, time: number): void {
  const row = lane.rowAt(time);
  if (row < 0 || lane.kv[row] !== WAITING) return;
  unfolded.value = keyOf(lane.id, shown.waitAt(lane.id, time)?.since ?? lane.at[row]);
}
const SHOWN = 12;
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
  const key = keyOf(wait.request, wait.since);
  const open = unfolded.value === key;
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (open) place.current?.scrollIntoView({ block: "nearest" });
  }, [open]);
  const lacked = lackedOf(wait.lacked);
  return (
    <div class="dc-wait" ref={place}>
      <div class="dc-wait-head">
        <b>{duration(wait.until - wait.since)}</b>
        <span class="muted">{[afterOf(wait.after), `at ${moment(wait.since)}`].filter(Boolean).join(", ")}</span>
        {own && <span class="chip">after this pause</span>}
        <span class="grow" />
        <button class="plain" aria-expanded={open} onClick={() => (unfolded.value = open ? "" : key)}>
          {open ? "Hide" : "Who held blocks?"}
        </button>
      </div>
      {lacked.length > 0 && (
        <ul class="dc-lacked">
          {lacked.map(({ what, steps }) => <li key={what}>lacked {what} in {counted(steps, "step")}{wait.steps ? ` of ${count(wait.steps)}` : ""}</li>)}
        </ul>
      )}
      <p class="small soft">{restOf(wait, lacked.length > 0)}</p>
      {open && <Holders wait={wait} />}
    </div>
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
  return parts.join(" ");
}

function Holders({ wait }: { wait: WaitEntry }) {
  const shown = trace.value;
  if (!shown) return null;
  const list = blockers(shown, wait.request, wait.since, wait.until);
  const all = list.reduce((sum, one) => sum + one.blockSeconds, 0);
  if (!list.length) return <p class="small soft">No other request held blocks on the device.</p>;
  return (
    <table class="dc-holders">
      <thead>
        <tr><th>request</th><th>mostly</th><th class="num">blocks</th><th class="num">for</th><th class="num" title="Of all block-seconds that others held meanwhile">share</th></tr>
      </thead>
      <tbody>{list.slice(0, SHOWN).map((one) => <Holder key={one.lane.id} blocker={one} all={all} />)}</tbody>
      {list.length > SHOWN && <tfoot><tr><td colSpan={5} class="muted">and {count(list.length - SHOWN)} more with smaller shares</td></tr></tfoot>}
    </table>
  );
}

function Holder({ blocker, all }: { blocker: Blocker; all: number }) {
  const name = STATES[mainState(blocker)];
  return (
    <tr title={`${number(blocker.blockSeconds)} block-seconds`}>
      <td><a class="mono" href={link("timeline", [], { sel: blocker.lane.id, pause: "" })}>{brief(blocker.lane.id, 20)}</a></td>
      <td><i class="dc-swatch" style={{ background: `var(--state-${name})` }} />{STATE_NAMES[name]}</td>
      <td class="num">{number(blocker.meanBlocks)}</td>
      <td class="num">{duration(blocker.seconds)}</td>
      <td class="num">{percent(blocker.blockSeconds / all)}</td>
    </tr>
  );
}
