// What became of each session, in numbers: times by state, tokens, pauses, regret.
import { largest } from "../../charts/stats";
import { DECODE, DROPPED, type Lane, PREFILL, RECOMPUTE, STATES, WAITING, isPause } from "../../model/lane";
import { decodedOf as decodedIn, firstTokenOf } from "../../causes/figures";
import type { Pause } from "../../model/pause";
import type { SessionEntry } from "../../model/records";
import type { Session, Trace } from "../../model/trace";

/** The figures of a session; times in seconds. */
export interface SessionFigures {
  id: string;
  lanes: readonly Lane[];
  pauses: readonly Pause[];
  /** When it arrived. */
  start: number;
  /** When it ended; null while it goes on or where the recording stops before. */
  end: number | null;
  /** By the states' codes, over all of its requests. */
  seconds: Float64Array;
  /** From arrival to the end, less what tools took; null while it goes on. */
  latency: number | null;
  /** From the arrival in the engine of its first request with a token to that token; null while there is none. */
  ttft: number | null;
  /** Calls by its record, or its pauses where there are more. */
  calls: number;
  /** The longest context it had, in tokens. */
  tokens: number;
  /** Tokens that it decoded; null where its records are not whole. */
  decoded: number | null;
  /** Computed although they had been before, at resumes from pauses. */
  recomputed: number;
  /** How often it went from running back to waiting without a pause. */
  preemptions: number;
  /** Block-seconds; null where no pause says it. */
  regret: number | null;
}

/** Figures as they were made, from which records, and until when where the session goes on. */
interface Kept {
  stamp: number;
  now: number;
  figures: SessionFigures;
}
const known = new WeakMap<Trace, Map<string, Kept>>();

/** Return the figures of all sessions in the order of their arrival; `now` ends what goes on.
 *
 * The same object comes again for a session of which nothing is new: of ten thousand few are open.
 */
export function figuresOf(trace: Trace, now: number): SessionFigures[] {
  const found: SessionFigures[] = [];
  for (const id of trace.sessionIds()) found.push(figuresOfOne(trace, id, now));
  return found.sort((a, b) => a.start - b.start || (a.id < b.id ? -1 : 1));
}

/** Return the figures of one session; the same object as long as nothing of it is new. */
export function figuresOfOne(trace: Trace, id: string, now: number): SessionFigures {
  let all = known.get(trace);
  if (!all) known.set(trace, (all = new Map()));
  const stamp = trace.stampOf(id);
  let one = all.get(id);
  if (one?.stamp !== stamp || (one.now !== now && isOpen(one.figures))) {
    const session = trace.sessions.get(id) ?? { id, lanes: [], end: null };
    all.set(id, (one = { stamp, now, figures: figures(session, trace.pausesOfSession(id), now) }));
  }
  return one.figures;
}

const isOpen = ({ lanes }: SessionFigures): boolean => lanes.some((lane) => lane.end === null);

/** Return the seconds that lanes spent in each state, by the states' codes. */
export function secondsByState(lanes: readonly Lane[], now: number): Float64Array {
  const seconds = new Float64Array(STATES.length);
  for (const lane of lanes) {
    for (let row = 0; row < lane.length; row++) {
      seconds[lane.state[row]] += lane.until(row, now) - lane.at[row];
    }
  }
  return seconds;
}

function figures(session: Session, pauses: readonly Pause[], now: number): SessionFigures {
  const { id, lanes, end: record } = session;
  const start = arrivalOf(session, pauses);
  const end = endOf(session);
  const seconds = secondsByState(lanes, now);
  return {
    id, lanes: [...lanes], pauses: [...pauses], start, end, seconds,
    latency: end === null ? null : latencyOf(lanes, seconds, pauses, end - start),
    ttft: ttftOf(lanes),
    calls: Math.max(record?.calls ?? 0, pauses.length),
    tokens: largest(pauses.map((pause) => pause.contextTokens ?? 0), mostTokens(lanes)),
    decoded: record && decodedOf(record, pauses, lanes),
    recomputed: pauses.reduce((sum, pause) => sum + (pause.end?.recomputed_tokens ?? 0), 0),
    preemptions: lanes.reduce((sum, lane) => sum + preemptionsOf(lane), 0),
    regret: regretOf(pauses),
  };
}

function arrivalOf({ lanes, end }: Session, pauses: readonly Pause[]): number {
  const said = end?.arrival ?? pauses.find((pause) => pause.end?.arrival !== undefined)?.end?.arrival;
  const seen = lanes.reduce((least, lane) => Math.min(least, lane.length ? lane.start : Infinity), Infinity);
  return Math.min(said ?? Infinity, seen, pauses[0]?.at ?? Infinity, end?.at ?? Infinity);
}

function endOf({ lanes, end }: Session): number | null {
  if (end) return end.at;
  const ended = lanes.length > 0 && lanes.every((lane) => lane.end !== null);
  return ended ? largest(lanes.map((lane) => lane.end ?? 0)) : null;
}

/** Lanes say best how long it was not a tool's turn; without them the pauses' records do. */
function latencyOf(
  lanes: readonly Lane[], seconds: Float64Array, pauses: readonly Pause[], whole: number,
): number {
  const traced = lanes.some((lane) => lane.length > 0);
  if (!traced) return whole - pauses.reduce((sum, pause) => sum + (pause.seconds ?? 0), 0);
  return seconds.reduce((sum, each, code) => (isPause(code) ? sum : sum + each), 0);
}

function ttftOf(lanes: readonly Lane[]): number | null {
  for (const lane of lanes) {
    const seconds = firstTokenOf(lane);
    if (seconds !== null) return seconds;
  }
  return null;
}

function mostTokens(lanes: readonly Lane[]): number {
  let most = 0;
  for (const lane of lanes) {
    for (let row = 0; row < lane.length; row++) most = Math.max(most, lane.tokens[row]);
  }
  return most;
}

/** Each record tells of the segment that it ends. Coarse lanes have no records of their pauses, but
 * the tokens at the begin and the end of each segment's decode. */
function decodedOf(record: SessionEntry, pauses: readonly Pause[], lanes: readonly Lane[]): number | null {
  const gaps = lanes.some((lane) => lane.seen(DROPPED));
  if (!pauses.length && gaps) return lanes.reduce((sum, lane) => sum + decodedIn(lane), 0);
  let sum = record.decoded_tokens ?? NaN;
  for (const pause of pauses) sum += pause.end?.decoded_tokens ?? NaN;
  return Number.isNaN(sum) ? null : sum;
}

function preemptionsOf(lane: Lane): number {
  let count = 0;
  for (let row = 1; row < lane.length; row++) {
    const before = lane.state[row - 1];
    const ran = before === PREFILL || before === RECOMPUTE || before === DECODE;
    if (ran && lane.state[row] === WAITING) count += 1;
  }
  return count;
}

function regretOf(pauses: readonly Pause[]): number | null {
  const known = pauses.flatMap((pause) => (pause.regret === null ? [] : [pause.regret]));
  return known.length ? known.reduce((sum, regret) => sum + regret, 0) : null;
}
