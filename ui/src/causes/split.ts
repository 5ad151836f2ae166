// A pause by who took its time: the tool itself, a person, the runtime, and the step that was running.
import { quantile, sorted } from "../charts/stats";
import type { Lane } from "../model/lane";
import type { Pause } from "../model/pause";
import type { SpanEntry } from "../model/records";
import type { Trace } from "../model/trace";
import { sentAt, servedOf } from "./served";

/** Who took the time. Of `unseen` nothing is recorded, as of the tools that clients run. */
export type Share = "tool" | "person" | "runtime" | "step" | "unseen";
export const SHARES: readonly Share[] = ["tool", "person", "runtime", "step", "unseen"];

export interface Piece {
  share: Share;
  from: number;
  until: number;
}

/** A pause until its result reached the scheduler; seconds by share, which sum up to it. */
export interface Split {
  seconds: Record<Share, number>;
  total: number;
  /** The calls that it waited for, also those that had returned when it began. */
  calls: SpanEntry[];
  /** Whether the runtime's share and the step's are told apart. */
  exact: boolean;
}

/** Clocks of the two processes and of records are this close, in seconds. */
const CLOSE = 1e-3;

/** Return who took which part of a pause, in time order and without gaps; an open pause ends `now`. */
export function piecesOf(trace: Trace, pause: Pause, now: number): Piece[] {
  return piecesBy(partiesOf(trace, pause, now), pause, now);
}

function piecesBy({ from, until, calls, sent, told }: Parties, pause: Pause, now: number): Piece[] {
  if (!told) return until > from ? [{ share: "unseen", from, until }] : [];
  const waits = calls.flatMap((call) => personsOf(call, pause, now));
  const times = [sent, ...calls.flatMap((call) => [call.start, call.end]), ...waits.flatMap((one) => [one.from, one.until])];
  const inside = times.filter((time): time is number => typeof time === "number" && time > from && time < until);
  const bounds = [from, ...inside.sort((a, b) => a - b), until];
  const pieces: Piece[] = [];
  for (let i = 1; i < bounds.length; i++) {
    const middle = (bounds[i - 1] + bounds[i]) / 2;
    const share = shareAt(middle, calls, waits, sent, now);
    const last = pieces.at(-1);
    if (last?.share === share) last.until = bounds[i];
    else if (bounds[i] > bounds[i - 1]) pieces.push({ share, from: bounds[i - 1], until: bounds[i] });
  }
  return pieces;
}

/** Return who took [from, until] of a lane's pause: the first and the last piece of the pause reach to its ends. */
export function piecesWithin(trace: Trace, lane: Lane, from: number, until: number, now: number): Piece[] {
  const pause = trace.pausesOf(lane.id).findLast((one) => one.at <= from + CLOSE);
  const pieces = pause ? piecesOf(trace, pause, now) : [];
  if (!pieces.length) return [{ share: "unseen", from, until }];
  return pieces.map((piece, place) => ({
    share: piece.share,
    from: place ? Math.max(piece.from, from) : from,
    until: place + 1 < pieces.length ? Math.min(piece.until, until) : until,
  })).filter((piece) => piece.until > piece.from);
}

/** Splits that no later entry changes: a live page has thousands of them, five times a second. */
const settled = new WeakMap<Pause, Split>();

/** Return a pause's time by who took it. */
export function splitOf(trace: Trace, pause: Pause, now: number): Split {
  const known = settled.get(pause);
  if (known) return known;
  const parties = partiesOf(trace, pause, now);
  const { calls, sent, over } = parties;
  const seconds: Split["seconds"] = { tool: 0, person: 0, runtime: 0, step: 0, unseen: 0 };
  let total = 0;
  for (const piece of piecesBy(parties, pause, now)) {
    seconds[piece.share] += piece.until - piece.from;
    total += piece.until - piece.from;
  }
  const split: Split = { seconds, total, calls, exact: sent !== null || pause.seconds === null };
  // A turn is written when it ends, which is after its calls; older recordings lack what was handed over.
  if ((sent !== null || over) && pause.end && calls.every((call) => call.end !== null)) settled.set(pause, split);
  return split;
}

interface Stretch {
  from: number;
  until: number;
}

interface Parties extends Stretch {
  calls: SpanEntry[];
  /** When the results were handed to the engine; null where that is not recorded. */
  sent: number | null;
  /** Whether any span tells of it. */
  told: boolean;
  /** Whether its run has ended, so that no more spans come. */
  over: boolean;
}

function partiesOf(trace: Trace, pause: Pause, now: number): Parties {
  const from = pause.at;
  const until = Math.max(from, pause.seconds === null ? (pause.end ? from : now) : from + pause.seconds);
  const lane = trace.byRequest.get(pause.request);
  const served = lane ? servedOf(trace, lane) : null;
  if (!served) return { from, until, calls: [], sent: null, told: false, over: false };
  const before = served.turns.findLast((turn) => turn.start < from);
  const next = served.turns.find((turn) => turn.start >= from - CLOSE && turn.start <= until + CLOSE);
  const calls = served.run.calls.filter((call) => call.start >= (before?.start ?? from) && call.start < until);
  return { from, until, calls, sent: sentAt(next), told: calls.length > 0 || next !== undefined, over: served.run.span.end !== null };
}

function shareAt(time: number, calls: SpanEntry[], waits: Stretch[], sent: number | null, now: number): Share {
  if (sent !== null && time > sent) return "step";
  if (waits.some((wait) => wait.from < time && time < wait.until)) return "person";
  return calls.some((call) => call.start < time && time < (call.end ?? now + 1)) ? "tool" : "runtime";
}

/** When a call waited for a person. Of one that is open only its pause tells. */
function personsOf(call: SpanEntry, pause: Pause, now: number): Stretch[] {
  const until = call.end ?? now;
  if (call.end === null && pause.person) return [{ from: call.start, until: now + 1 }];
  const waits: Stretch[] = [];
  for (const event of call.events ?? []) {
    if (event.name === "caesura.person.asked") waits.push({ from: event.at, until });
    const last = waits.at(-1);
    if (event.name === "caesura.person.settled" && last) last.until = event.at;
  }
  return waits;
}

/** How long a tool took by itself: its call's time without what it waited for people; null while it runs. */
export function ownSeconds(call: SpanEntry): number | null {
  if (call.end === null) return null;
  const person = call.attributes?.["caesura.person.seconds"];
  return Math.max(0, call.end - call.start - (typeof person === "number" ? person : 0));
}

/** One share of many pauses. */
export interface ShareRow {
  share: Share;
  p50: number;
  p95: number;
  p99: number;
  /** Of all the pauses' time. */
  part: number;
}

/** Return the shares of the pauses that have ended with a result, and of those whose spans are recorded. */
export function sharesOf(trace: Trace, pauses: readonly Pause[], now: number): { rows: ShareRow[]; pauses: number; exact: boolean } {
  const splits = pauses
    .filter((pause) => pause.outcome === "resumed")
    .map((pause) => splitOf(trace, pause, now))
    .filter((split) => split.seconds.unseen === 0 && split.total > 0);
  const all = splits.reduce((sum, split) => sum + split.total, 0);
  const rows = SHARES.filter((share) => splits.some((split) => split.seconds[share] > 0)).map((share) => {
    const seconds = sorted(splits.map((split) => split.seconds[share]));
    return {
      share,
      p50: quantile(seconds, 0.5), p95: quantile(seconds, 0.95), p99: quantile(seconds, 0.99),
      part: seconds.reduce((sum, one) => sum + one, 0) / all,
    };
  });
  return { rows, pauses: splits.length, exact: splits.every((split) => split.exact) };
}
