// Which run each request of the engine belongs to: what the server did around it is in the run's spans.
import type { Lane } from "../../model/lane";
import type { SpanEntry } from "../../model/records";
import type { Run } from "../../model/spans";
import type { Trace } from "../../model/trace";

/** A request as the server saw it. */
export interface Served {
  run: Run;
  /** The turns that this request decoded, in time order; one at least. */
  turns: SpanEntry[];
  /** Whether it decoded the run's first turn, and its last. */
  first: boolean;
  last: boolean;
}

/** Runs by the ids of their requests; a turn is written when it ends, and added then. */
class RunIndex {
  private readonly byRequest = new Map<string, Run>();
  /** How many turns of each run are in the index. */
  private readonly taken: number[] = [];

  constructor(private readonly trace: Trace) {}

  runOf(request: string): Run | null {
    this.trace.runs.forEach((run, place) => {
      if (this.taken[place] !== run.turns.length) this.taken[place] = this.take(run);
    });
    return this.byRequest.get(request) ?? null;
  }

  private take(run: Run): number {
    let found = 0;
    for (const turn of run.turns) {
      const lane = this.trace.laneOfSpan(turn);
      if (lane) this.byRequest.set(lane.id, run);
      if (lane || turn.attributes?.["caesura.request.id"] === undefined) found += 1;
    }
    return found;
  }
}

const known = new WeakMap<Trace, RunIndex>();

/** Return the spans around a request; null where there are none, or none yet. */
export function servedOf(trace: Trace, lane: Lane): Served | null {
  let index = known.get(trace);
  if (!index) known.set(trace, (index = new RunIndex(trace)));
  const run = index.runOf(lane.id);
  if (!run) return null;
  const turns = run.turns.filter((turn) => trace.laneOfSpan(turn) === lane);
  if (!turns.length) return null;
  return { run, turns, first: turns[0] === run.turns[0], last: turns.at(-1) === run.turns.at(-1) };
}

/** When a turn's tokens were handed to the engine; null in older recordings, and where rendering failed. */
export function sentAt(turn: SpanEntry | null | undefined): number | null {
  return turn?.events?.find((event) => event.name === "caesura.request_sent")?.at ?? null;
}
