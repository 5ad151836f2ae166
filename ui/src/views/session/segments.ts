// A request without spans: what it did between its pauses, read off its lane.
import { type Lane, STATES, isPause } from "../../model/lane";
import type { Pause } from "../../model/pause";
import type { Trace } from "../../model/trace";

/** A stretch of a request between pauses, or a pause (`pause` is null where no record tells of it). */
export interface Segment {
  kind: "segment" | "pause";
  request: string;
  from: number;
  /** The end, or now for what goes on. */
  to: number;
  open: boolean;
  /** By the states' codes. */
  seconds: Float64Array;
  /** Tokens of context at the beginning and at the end. */
  tokensFrom: number;
  tokensTo: number;
  pause: Pause | null;
}

/** Return the segments and pauses of a request in order; `now` ends what goes on. */
export function segmentsOf(lane: Lane, trace: Trace, now: number): Segment[] {
  const found: Segment[] = [];
  let current: Segment | null = null;
  for (let row = 0; row < lane.length; row++) {
    const from = lane.at[row];
    const until = lane.until(row, now);
    const kind = isPause(lane.state[row]) ? "pause" : "segment";
    if (STATES[lane.state[row]] === "ended") break;
    if (!current || current.kind !== kind) {
      current = begun(kind, lane, row, trace);
      found.push(current);
    }
    current.to = until;
    current.open = row === lane.length - 1;
    current.seconds[lane.state[row]] += until - from;
    current.tokensTo = row + 1 < lane.length ? lane.tokens[row + 1] : lane.tokens[row];
  }
  return found;
}

function begun(kind: Segment["kind"], lane: Lane, row: number, trace: Trace): Segment {
  const at = lane.at[row];
  return {
    kind,
    request: lane.id,
    from: at,
    to: at,
    open: false,
    seconds: new Float64Array(STATES.length),
    tokensFrom: lane.tokens[row],
    tokensTo: lane.tokens[row],
    pause: kind === "pause" ? (trace.pauseAt(lane.id, at) ?? null) : null,
  };
}
