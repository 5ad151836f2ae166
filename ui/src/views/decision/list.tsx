// All pauses of a recording, the dearest mistakes first.
import { signal } from "@preact/signals";
import { param } from "../../app/address";
import { link } from "../../app/router";
import { current, filters, setFilters, trace, version } from "../../app/state";
import { blockSeconds, count, counted, duration, moment, number } from "../../format";
import type { Pause } from "../../model/pause";
import type { Recording } from "../../model/records";
import { visible } from "../session/content";
import { Called } from "../session/called";
import { passing } from "../timeline/rows";
import { estimateOf } from "./chosen";
import { WantedBy } from "./wanting";
import { handlingOf, outcomeOf } from "./words";

type Column = "at" | "tool" | "predicted" | "seconds" | "handling" | "cost" | "wanted" | "regret";
/** A column, with a minus before it if the largest come first. */
const order = param("dc.sort", "-regret");
const shownCount = signal(200);

/** What a column is sorted by; those without a value come last in either direction. */
const VALUES: Record<Column, (pause: Pause) => number | string | null> = {
  at: (pause) => pause.at,
  tool: (pause) => pause.tool ?? "",
  predicted: (pause) => pause.predictedSeconds,
  seconds: (pause) => pause.seconds ?? Infinity,
  handling: (pause) => pause.handling ?? "",
  cost: (pause) => (pause.free ? null : pause.cost),
  wanted: (pause) => pause.wantedSeconds,
  regret: (pause) => pause.regret,
};

/** The column and the direction that the address names; an unknown column is as none. */
function ordering(): { by: Column; down: boolean } {
  const [, minus, name] = /^(-?)(.*)$/.exec(order.value)!;
  return Object.hasOwn(VALUES, name) ? { by: name as Column, down: minus === "-" } : { by: "regret", down: true };
}

/** `pauses` by a column; equal ones keep their time order. */
export function sorted(pauses: readonly Pause[], by: Column, down: boolean): Pause[] {
  const value = VALUES[by];
  return [...pauses].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === null || y === null) return Number(x === null) - Number(y === null) || a.at - b.at;
    return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1) || a.at - b.at;
  });
}

export function PauseList() {
  version.value;
  const shown = trace.value;
  if (!shown) return null;
  const { q, tool, outcome } = filters.value;
  const passes = passing(shown, { q, tool: "", state: "", outcome: "" });
  const list = shown.pauses.filter((pause) => {
    const lane = shown.byRequest.get(pause.request);
    const kinds = [pause.outcome, pause.handling, (pause.regret ?? 0) > 0 ? "regret" : ""];
    return (!tool || pause.tool === tool) && (!outcome || kinds.includes(outcome)) && (!q || (lane !== undefined && passes(lane)));
  });
  const { by, down } = ordering();
  const rows = sorted(list, by, down);
  const open = list.filter((pause) => !pause.end).length;
  return (
    <div class="view dc-list">
      <div class="row">
        <h2>Decisions</h2>
        {list.length > 0 && <span class="soft">{counted(list.length, "pause")}, {count(open)} open; {inAll(list)}</span>}
        <span class="grow" />
        <input type="search" placeholder="Search id, session, tool" aria-label="Search" value={q} onInput={(event) => setFilters({ q: event.currentTarget.value })} />
        <select aria-label="Tool" value={tool} onChange={(event) => setFilters({ tool: event.currentTarget.value })}>
          <option value="">all tools</option>
          {[...shown.tools].sort().map((name) => <option key={name} value={name}>{name}</option>)}
        </select>
      </div>
      {list.length === 0 ? <p class="soft">{shown.pauses.length ? "No pause is like that. Change the filters." : noneOf(current.value?.recording)}</p> : <Table rows={rows} />}
    </div>
  );
}

/** What all pauses came to. */
function inAll(list: readonly Pause[]): string {
  const known = list.flatMap((pause) => (pause.regret === null ? [] : [pause.regret]));
  if (known.length) return `regret ${blockSeconds(known.reduce((sum, regret) => sum + regret, 0))} in all`;
  if (list.some((pause) => pause.free)) return "nobody wanted their memory, so keeping it cost nothing";
  return list.some((pause) => pause.pricedOtherwise) ? "an earlier version priced them, whose regret is not shown" : "none has ended";
}

/** Why there are no pauses to decide of. */
function noneOf(recording: Recording | undefined): string {
  return recording?.about.lanes === "coarse"
    ? "vLLM's own scheduler decides nothing of pauses: its requests end at a call and begin anew behind it. When they were away is in the timeline."
    : "No request of this recording has paused.";
}

const HEADS: [by: Column, name: string, numeric: boolean, meaning: string][] = [
  ["at", "began", false, ""],
  ["tool", "tool", false, ""],
  ["predicted", "expected", true, "How long the pause was expected to last."],
  ["seconds", "took", true, "How long it lasted until the result came."],
  ["handling", "KV was", false, "What came of its KV cache."],
  ["wanted", "wanted by", false, "Who lacked blocks during the pause and while it queued behind it. Sorted by how long others wanted its memory."],
  ["cost", "cost, blk·s", true, "Block-seconds that it cost others and itself, its queue included: a block that another request wanted for a second costs one. A dash: keeping it cost nothing."],
  ["regret", "regret, blk·s", true, "Block-seconds beyond the cheapest alternative in hindsight. A dash: nobody wanted its memory, and nothing was recomputed or loaded."],
];

/** Whether several recordings are shown as one. */
const several = (): boolean => (trace.value?.parts.length ?? 0) > 1;

function Table({ rows }: { rows: Pause[] }) {
  const { by, down } = ordering();
  const turn = (column: Column, large: boolean): void => {
    order.value = `${(by === column ? !down : large) ? "-" : ""}${column}`;
  };
  return (
    <>
      <table class="panel dc-all">
        <thead>
          <tr>
            <th>request</th>
            {several() && <th>server</th>}
            {HEADS.map(([column, name, numeric, meaning]) => (
              <th key={column} class={numeric ? "num" : ""} title={meaning} aria-sort={by === column ? (down ? "descending" : "ascending") : "none"}>
                <button class="dc-sort" onClick={() => turn(column, numeric || column === "wanted")}>
                  {name}{by === column ? (down ? " ↓" : " ↑") : ""}
                </button>
              </th>
            ))}
            <th>estimate</th>
            <th>outcome</th>
          </tr>
        </thead>
        <tbody>{rows.slice(0, shownCount.value).map((pause) => <Line key={`${pause.request} ${pause.at}`} pause={pause} />)}</tbody>
      </table>
      {rows.length > shownCount.value && (
        <button onClick={() => (shownCount.value += 500)}>Show more of {count(rows.length)}</button>
      )}
    </>
  );
}

function Line({ pause }: { pause: Pause }) {
  return (
    <tr>
      <td><a href={link("decision", [pause.request, String(pause.at)])}><Called request={pause.request} /></a></td>
      {several() && <td>{visible(trace.value!.partOf(pause.request).server)}</td>}
      <td>{moment(pause.at)}</td>
      <td>{pause.tool ?? <span class="muted">unknown</span>}</td>
      <td class="num">{duration(pause.predictedSeconds)}</td>
      <td class="num">{pause.seconds === null ? "open" : duration(pause.seconds)}</td>
      <td>{handlingOf(pause)}</td>
      <td><WantedBy pause={pause} /></td>
      <td class="num">{number(pause.free ? null : pause.cost)}</td>
      <td class="num">{number(pause.regret)}</td>
      <td class="muted">{estimateOf(pause)}</td>
      <td>{outcomeOf(pause)}</td>
    </tr>
  );
}
