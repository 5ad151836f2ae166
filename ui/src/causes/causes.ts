// Where a request's time went, and why: stretches of its life with a cause each, and their sums.
import {
  DECODE, type Lane, LOADING, PERSON, PREFILL, RECOMPUTE, WAITING, isPause,
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
  | "loading" | "prefill" | "recompute" | "prompts" | "decode" | "tool" | "person" | "runtime";

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

/** Return the stretches of a request's life in time order; together they are as long as it took. */
export function piecesOf(request: Request, trace: Trace, pressure: Pressure, now: number): Piece[] {
  const { lane } = request;
  const end = request.end ?? Math.max(now, lane.at[lane.length - 1]);
  const pieces: Piece[] = [];
  for (let row = 0; row < lane.length && lane.at[row] < end; row++) {
    const from = lane.at[row];
    const until = Math.min(lane.until(row, end), end);
    if (until <= from) continue;
    const state = lane.state[row];
    const whole = { name: "", from, until, seconds: until - from, tokens: 0 };
    if (state === WAITING) pieces.push(...waited(trace.waitAt(lane.id, (from + until) / 2), whole, pressure));
    else if (state === LOADING) pieces.push({ ...whole, kind: "loading" });
    else if (state === PREFILL) pieces.push({ ...whole, kind: "prefill", tokens: givenAt(request, row) });
    else if (state === RECOMPUTE) pieces.push({ ...whole, kind: "recompute", tokens: againAt(trace, request, row) });
    else if (state === DECODE) pieces.push(...decoded(request, row, whole, pressure));
    else if (isPause(state)) pieces.push(...paused(trace, lane, whole, state === PERSON, now));
  }
  return joined(pieces);
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

type Whole = Omit<Piece, "kind">;

/** A wait by what it lacked in how many steps. Blocks were with paused requests by their share of all that were held. */
function waited(wait: WaitEntry | undefined, whole: Whole, pressure: Pressure): Piece[] {
  const lacked = wait?.lacked ?? {};
  const steps = LACKED.reduce((sum, { of }) => sum + (lacked[of] ?? 0), 0);
  if (!steps) return [{ ...whole, kind: "queue" }];
  const pieces: Piece[] = [];
  for (const { of, kind } of LACKED) {
    const seconds = whole.seconds * (lacked[of] ?? 0) / steps;
    if (!seconds) continue;
    const paused = kind === "blocks" ? seconds * pressure.pausedShare(whole.from, whole.until) : 0;
    if (paused > 0) pieces.push({ ...whole, kind: "paused-blocks", seconds: paused });
    if (seconds > paused) pieces.push({ ...whole, kind, seconds: seconds - paused });
  }
  return pieces;
}

/** A decode, and what of it steps took longer for the prompts of others. */
function decoded({ lane }: Request, row: number, whole: Whole, pressure: Pressure): Piece[] {
  const tokens = row + 1 < lane.length ? Math.max(0, lane.tokens[row + 1] - lane.tokens[row]) : 0;
  const extra = pressure.heldUp(whole.from, whole.until);
  const own: Piece = { ...whole, kind: "decode", seconds: whole.seconds - extra, tokens };
  return extra > 0 ? [own, { ...whole, kind: "prompts", seconds: extra }] : [own];
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
function paused(trace: Trace, lane: Lane, whole: Whole, person: boolean, now: number): Piece[] {
  const pause = pauseAt(trace, lane.id, whole.from);
  const name = pause?.tool ?? "";
  const told = pause && piecesOfPause(trace, pause, now).some((one) => one.share === "person");
  return piecesWithin(trace, lane, whole.from, whole.until, now).map(({ share, from, until }): Piece => {
    if (share === "runtime" || share === "step") return { ...whole, kind: "runtime", from, until, seconds: until - from };
    const kind = share === "person" || (person && !told) ? "person" : "tool";
    return { ...whole, kind, name, from, until, seconds: until - from };
  });
}

/** The pause that goes on at a time. */
function pauseAt(trace: Trace, request: string, at: number): Pause | undefined {
  return trace.pausesOf(request).findLast((pause) => pause.at <= at + 1e-4);
}

/** Rows repeat a state when blocks change: what goes on with the same cause is one stretch. */
function joined(pieces: Piece[]): Piece[] {
  const found: Piece[] = [];
  for (const piece of pieces) {
    const before = goesOnWith(found, piece);
    if (!before) {
      found.push(piece);
      continue;
    }
    before.until = piece.until;
    before.seconds += piece.seconds;
    if (piece.kind === "decode") before.tokens += piece.tokens;
  }
  return found;
}

/** The stretch that `piece` continues; a wait has one for each thing that it lacked. */
function goesOnWith(found: readonly Piece[], piece: Piece): Piece | undefined {
  for (let place = found.length - 1; place >= 0 && place >= found.length - LACKED.length - 1; place--) {
    const one = found[place];
    if (one.kind === piece.kind && one.name === piece.name && one.until === piece.from) return one;
  }
  return undefined;
}
