// Where a request's time went, and why: stretches of its life with a cause each, and their sums.
import {
  DECODE, LOST, type Lane, LOADING, PERSON, PREFILL, RECOMPUTE, WAITING, isPause,
} from "../model/lane";
import type { Pause } from "../model/pause";
import type { Lacked, WaitEntry } from "../model/records";
import type { Trace } from "../model/trace";
import type { Request } from "./figures";
import type { Pressure } from "./pressure";
import { piecesOf as piecesOfPause, piecesWithin } from "./split";

/** Why time passed. Waiting is told by what the request lacked. */
export type Kind =
  | "paused-blocks" | "blocks" | "slots" | "tokens" | "admission" | "order" | "queue"
  | "loading" | "prefill" | "recompute" | "prompts" | "decode" | "died" | "tool" | "person" | "runtime";

/** A stretch of a request's life. Stretches of one wait may cover the same time: `seconds` is the cause's part of it. */
export interface Piece {
  kind: Kind;
  /** The tool's name, if known; "" of all that is no pause. */
  name: string;
  from: number;
  until: number;
  seconds: number;
  /** Tokens that it computed meanwhile. */
  tokens: number;
}

/** All of a request's time with one cause. */
export interface Cause {
  kind: Kind;
  name: string;
  seconds: number;
  /** How many stretches it sums up. */
  times: number;
  tokens: number;
  /** The longest of them, which is where a link leads. */
  longest: Piece;
}

const LACKED: readonly { of: keyof Lacked; kind: Kind }[] = [
  { of: "blocks", kind: "blocks" }, { of: "slots", kind: "slots" }, { of: "tokens", kind: "tokens" },
  { of: "admission", kind: "admission" }, { of: "line", kind: "order" },
];

/** Takes a stretch, field by field: thousands of requests are summed up without an object for each. */
export type Put = (kind: Kind, name: string, from: number, until: number, seconds: number, tokens: number) => void;

/** Tell the stretches of a request's life in time order; together they are as long as it took. */
export function tell(request: Request, trace: Trace, pressure: Pressure, now: number, put: Put): void {
  const { lane } = request;
  const end = request.end ?? Math.max(now, lane.at[lane.length - 1]);
  for (let row = 0; row < lane.length && lane.at[row] < end; row++) {
    const from = lane.at[row];
    const until = Math.min(lane.until(row, end), end);
    if (until <= from) continue;
    const state = lane.state[row];
    if (state === WAITING) waited(trace.waitAt(lane.id, (from + until) / 2), from, until, pressure, put);
    else if (state === LOADING) put("loading", "", from, until, until - from, 0);
    else if (state === PREFILL) put(afterDeath(lane, row) ? "recompute" : "prefill", "", from, until, until - from, givenAt(request, row));
    else if (state === RECOMPUTE) put("recompute", "", from, until, until - from, againAt(trace, request, row));
    else if (state === LOST) put("died", "", from, until, until - from, 0);
    else if (state === DECODE) decoded(request, row, from, until, pressure, put);
    else if (isPause(state)) paused(trace, lane, from, until, state === PERSON, now, put);
  }
}

/** Return the stretches of a request's life in time order. */
export function piecesOf(request: Request, trace: Trace, pressure: Pressure, now: number): Piece[] {
  const pieces: Piece[] = [];
  tell(request, trace, pressure, now, (kind, name, from, until, seconds, tokens) => {
    join(pieces, { kind, name, from, until, seconds, tokens });
  });
  return pieces;
}

/** Return the causes of the time that stretches spent in [from, until), those that took longest first. */
export function causesOf(pieces: readonly Piece[], from = -Infinity, until = Infinity): Cause[] {
  const found = new Map<string, Cause>();
  for (const piece of pieces) {
    const part = clipped(piece, from, until);
    if (!part) continue;
    const key = `${part.kind} ${part.name}`;
    const known = found.get(key);
    if (!known) {
      found.set(key, { kind: part.kind, name: part.name, seconds: part.seconds, times: 1, tokens: part.tokens, longest: part });
      continue;
    }
    known.seconds += part.seconds;
    known.times += 1;
    known.tokens += part.tokens;
    if (part.seconds > known.longest.seconds) known.longest = part;
  }
  return [...found.values()].sort((a, b) => b.seconds - a.seconds);
}

/** The part of a stretch within a window; what it took and computed is spread evenly over it. */
function clipped(piece: Piece, from: number, until: number): Piece | null {
  if (piece.from >= from && piece.until <= until) return piece;
  const begin = Math.max(piece.from, from);
  const end = Math.min(piece.until, until);
  if (end <= begin) return null;
  const share = (end - begin) / (piece.until - piece.from);
  return { ...piece, from: begin, until: end, seconds: piece.seconds * share, tokens: piece.tokens * share };
}

/** A wait by what it lacked in how many steps. Blocks were with paused requests by their share of all that were held. */
function waited(wait: WaitEntry | undefined, from: number, until: number, pressure: Pressure, put: Put): void {
  const lacked = wait?.lacked ?? {};
  let steps = 0;
  for (const { of } of LACKED) steps += lacked[of] ?? 0;
  if (!steps) return put("queue", "", from, until, until - from, 0);
  for (const { of, kind } of LACKED) {
    const seconds = (until - from) * (lacked[of] ?? 0) / steps;
    if (!seconds) continue;
    const paused = kind === "blocks" ? seconds * pressure.pausedShare(from, until) : 0;
    if (paused > 0) put("paused-blocks", "", from, until, paused, 0);
    if (seconds > paused) put(kind, "", from, until, seconds - paused, 0);
  }
}

/** A decode, and what of it steps took longer for the prompts of others. */
function decoded({ lane }: Request, row: number, from: number, until: number, pressure: Pressure, put: Put): void {
  const tokens = row + 1 < lane.length ? Math.max(0, lane.tokens[row + 1] - lane.tokens[row]) : 0;
  const extra = pressure.heldUp(from, until);
  put("decode", "", from, until, until - from - extra, tokens);
  if (extra > 0) put("prompts", "", from, until, extra, 0);
}

/** Whether a prefill computes what the engine's death has lost: the next one knows nothing of it. */
function afterDeath(lane: Lane, row: number): boolean {
  for (let before = row - 1; before >= 0 && lane.state[before] !== DECODE; before--) if (lane.state[before] === LOST) return true;
  return false;
}

/** The tokens that a prefill had to compute at most: the prompt, or what a tool's result has added. */
function givenAt({ lane }: Request, row: number): number {
  for (let before = row - 1; before >= 0; before--) {
    const state = lane.state[before];
    if (isPause(state) || state === DECODE) return Math.max(0, lane.tokens[row] - lane.tokens[before]);
  }
  return lane.tokens[row];
}

/** The tokens that were computed again: what the pause before it says, else all of the context. */
function againAt(trace: Trace, { lane }: Request, row: number): number {
  let before = row - 1;
  while (before >= 0 && !isPause(lane.state[before]) && lane.state[before] !== DECODE) before -= 1;
  const paused = before >= 0 && isPause(lane.state[before]);
  return (paused && pauseAt(trace, lane.id, lane.at[before])?.end?.recomputed_tokens) || lane.tokens[row];
}

/** A pause by who took it. Of one that waits for a person, the call is the person's unless it tells more exactly. */
function paused(trace: Trace, lane: Lane, begin: number, end: number, person: boolean, now: number, put: Put): void {
  const pause = pauseAt(trace, lane.id, begin);
  const name = pause?.tool ?? "";
  const told = person && pause && piecesOfPause(trace, pause, now).some((one) => one.share === "person");
  for (const { share, from, until } of piecesWithin(trace, lane, begin, end, now)) {
    if (share === "runtime" || share === "step") put("runtime", "", from, until, until - from, 0);
    else put(share === "person" || (person && !told) ? "person" : "tool", name, from, until, until - from, 0);
  }
}

/** The pause that goes on at a time. */
function pauseAt(trace: Trace, request: string, at: number): Pause | undefined {
  return trace.pausesOf(request).findLast((pause) => pause.at <= at + 1e-4);
}

/** Rows repeat a state when blocks change: what goes on with the same cause is one stretch. */
function join(found: Piece[], piece: Piece): void {
  const before = goesOnWith(found, piece);
  if (!before) {
    found.push(piece);
    return;
  }
  before.until = piece.until;
  before.seconds += piece.seconds;
  if (piece.kind === "decode") before.tokens += piece.tokens;
}

/** The stretch that `piece` continues; a wait has one for each thing that it lacked. */
function goesOnWith(found: readonly Piece[], piece: Piece): Piece | undefined {
  for (let place = found.length - 1; place >= 0 && place >= found.length - LACKED.length - 1; place--) {
    const one = found[place];
    if (one.kind === piece.kind && one.name === piece.name && one.until === piece.from) return one;
  }
  return undefined;
}
