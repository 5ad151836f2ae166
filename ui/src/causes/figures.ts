// What one request took: figures that are the same wherever the page tells them.
import { DECODE, type Lane, PREFILL, RECOMPUTE, STATES, WAITING, isPause } from "../model/lane";
import type { Trace } from "../model/trace";

/** A request of the engine; times in seconds, sizes in tokens. */
export interface Request {
  lane: Lane;
  start: number;
  /** When its answer was over; null while it goes on. */
  end: number | null;
  /** By the states' codes, until its end or until now. */
  seconds: Float64Array;
  /** From its arrival in the engine until its first token; null while there is none. */
  firstToken: number | null;
  /** The context with which it arrived. */
  prompt: number;
  decoded: number;
  /** How long it took without tools and people. */
  engine: number;
  /** Pauses in its life: those that follow its answer are its client's. */
  pauses: number;
}

/** Return the figures of a lane, which has a row at least; `now` ends what goes on. */
export function requestOf(trace: Trace, lane: Lane, now: number): Request {
  const end = answeredAt(trace, lane);
  const until = end ?? Math.max(Math.min(now, lane.cut), lane.at[lane.length - 1]);
  const seconds = secondsUntil(lane, until);
  return {
    lane, end, seconds,
    start: lane.start,
    engine: seconds.reduce((sum, each, code) => (isPause(code) ? sum : sum + each), 0),
    firstToken: firstTokenOf(lane),
    prompt: promptOf(lane),
    decoded: decodedOf(lane),
    pauses: trace.pausesOf(lane.id).filter((pause) => pause.at < until).length,
  };
}

/** Return when a request's answer was over; null while it goes on.
 *
 * A request that ended with a call of its client keeps its KV for a while, and its lane goes on.
 * Its answer was over when that began.
 */
function answeredAt(trace: Trace, lane: Lane): number | null {
  if (lane.end === null) return null;
  let row = lane.rowAt(lane.end);
  while (row > 0 && isPause(lane.state[row - 1])) row -= 1;
  if (lane.at[row] === lane.end) return lane.end;
  const pause = trace.pauseAt(lane.id, lane.at[row]);
  // Nobody came back to a pause that was lost with its engine: that the answer was over is all that is known.
  return pause?.outcome === "followed" || pause?.outcome === "lost" || pause?.givenUp ? lane.at[row] : lane.end;
}

/** Return how long a request took in all, tools and people included; until `now` if it goes on. */
export const lengthOf = (request: Request, now: number): number => (request.end ?? Math.max(Math.min(now, request.lane.cut), request.start)) - request.start;

/** Return the seconds of decoding for each token; null where none was decoded. */
export function perToken(request: Request): number | null {
  return request.decoded > 0 && request.seconds[DECODE] > 0 ? request.seconds[DECODE] / request.decoded : null;
}

/** Return the engine's time to the first token of a lane; null while there is none. */
export function firstTokenOf(lane: Lane): number | null {
  for (let row = 0; row < lane.length; row++) {
    if (lane.state[row] === DECODE || preemptedAfterFirst(lane, row)) return lane.at[row] - lane.start;
  }
  return null;
}

/** Whether the step before `row` ended a prefill, so that there is a token, and the next was without the request. */
function preemptedAfterFirst(lane: Lane, row: number): boolean {
  const before = row ? lane.state[row - 1] : WAITING;
  return lane.state[row] === WAITING && (before === PREFILL || before === RECOMPUTE) && lane.tokens[row] > lane.tokens[row - 1];
}

/** Return the tokens that a lane decoded, by the contexts before and after each decode. */
export function decodedOf(lane: Lane): number {
  let tokens = 0;
  for (let row = 0; row + 1 < lane.length; row++) {
    if (lane.state[row] === DECODE) tokens += Math.max(0, lane.tokens[row + 1] - lane.tokens[row]);
  }
  return tokens;
}

function promptOf(lane: Lane): number {
  for (let row = 0; row < lane.length; row++) if (lane.tokens[row] > 0) return lane.tokens[row];
  return 0;
}

function secondsUntil(lane: Lane, until: number): Float64Array {
  const seconds = new Float64Array(STATES.length);
  for (let row = 0; row < lane.length && lane.at[row] < until; row++) {
    seconds[lane.state[row]] += Math.min(lane.until(row, until), until) - lane.at[row];
  }
  return seconds;
}
