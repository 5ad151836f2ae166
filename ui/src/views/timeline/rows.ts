// Which lanes are shown and in what order: sessions by first appearance, the requests of one together.
import { type Lane, STATES } from "../../model/lane";
import type { Trace } from "../../model/trace";
import type { Filters } from "../../app/state";

/** One line of the timeline. */
export interface LaneRow {
  lane: Lane;
  /** Its place among the shown lanes of its session, and how many those are. */
  place: number;
  of: number;
}

/** The lanes that `filters` let through, grouped by session. */
export function rowsOf(trace: Trace, filters: Filters): LaneRow[] {
  const rows: LaneRow[] = [];
  const done = new Set<string>();
  const passes = passing(trace, filters);
  for (const first of trace.lanes) {
    if (done.has(first.session)) continue;
    done.add(first.session);
    const lanes = (trace.sessions.get(first.session)?.lanes ?? [first]).filter(passes);
    lanes.forEach((lane, place) => rows.push({ lane, place, of: lanes.length }));
  }
  return rows;
}

/** Whether a lane is what the filters ask for. */
export function passing(trace: Trace, { q, tool, state, outcome }: Filters): (lane: Lane) => boolean {
  const words = q.toLowerCase().split(/\s+/).filter(Boolean);
  const code = STATES.indexOf(state as (typeof STATES)[number]);
  return (lane) =>
    lane.length > 0 &&
    words.every((word) => mentions(trace, lane, word)) &&
    (!tool || trace.pausesOf(lane.id).some((pause) => pause.tool === tool)) &&
    (code < 0 || lane.seen(code)) &&
    (!outcome || outcomesOf(trace, lane).has(outcome));
}

function mentions(trace: Trace, lane: Lane, word: string): boolean {
  return (
    lane.id.toLowerCase().includes(word) ||
    lane.session.toLowerCase().includes(word) ||
    trace.pausesOf(lane.id).some((pause) => pause.tool?.toLowerCase().includes(word))
  );
}

/** What came of a lane's pauses (`preserve`, `resumed`, ...), and of its session (`stop`, ...). */
export function outcomesOf(trace: Trace, lane: Lane): Set<string> {
  const outcomes = new Set<string>();
  for (const pause of trace.pausesOf(lane.id)) {
    outcomes.add(pause.outcome);
    if (pause.handling && pause.handling !== "none") outcomes.add(pause.handling);
    if ((pause.regret ?? 0) > 0) outcomes.add("regret");
  }
  const end = trace.sessions.get(lane.session)?.end?.outcome;
  if (end) outcomes.add(end);
  return outcomes;
}
