// Every second of a request, from its client's request to its end, in exactly one row.
import { type Served, sentAt, servedOf } from "../../causes/served";
import { type Share, piecesWithin } from "../../causes/split";
import { DECODE, ENDED, LOST, type Lane, LOADING, PREFILL, RECOMPUTE, WAITING, isPause } from "../../model/lane";
import type { Lacked, WaitEntry } from "../../model/records";
import type { Trace } from "../../model/trace";

export type Key =
  | "received" | "server" | "rendering" | "handover" | "answering" | "closing" | "sent"
  | `waiting-${keyof Lacked | "step" | "open" | "other"}`
  | "loading" | "prefill" | "recompute" | "decode" | "lost"
  | `paused-${Share}`;

/** The rows in the order in which they are shown. */
const KEYS: readonly Key[] = [
  "received", "server", "rendering", "handover",
  "waiting-blocks", "waiting-slots", "waiting-tokens", "waiting-admission", "waiting-line", "waiting-step", "waiting-open", "waiting-other",
  "loading", "prefill", "recompute", "decode", "lost",
  "paused-tool", "paused-person", "paused-runtime", "paused-step", "paused-unseen",
  "answering", "closing", "sent",
];

/** A stretch of a request's time with one cause. Those of one wait share its time: `seconds` is its part. */
export interface Slice {
  key: Key;
  from: number;
  until: number;
  seconds: number;
}

/** All slices of one cause. */
export interface AccountRow {
  key: Key;
  seconds: number;
  times: number;
  longest: Slice;
}

export interface Account {
  /** When the client's request came, as far as it is recorded, and when its answer was over, or now. */
  from: number;
  until: number;
  open: boolean;
  rows: AccountRow[];
  /** The spans around it; null where there are none. */
  served: Served | null;
  /** Whether the time of rendering and of the way to the engine are told apart. */
  exact: boolean;
  /** How long its KV was kept for a follow-up after its answer; 0 where it was not. */
  kept: number;
}

/** Return where the time of a request went; one that goes on ends `now`. */
export function accountOf(trace: Trace, lane: Lane, now: number): Account {
  const served = servedOf(trace, lane);
  const window = windowOf(trace, lane, served, now);
  const rows = new Map<Key, AccountRow>();
  for (const slice of slicesOf(trace, lane, served, window, now)) {
    const row = rows.get(slice.key);
    if (!row) rows.set(slice.key, { key: slice.key, seconds: slice.seconds, times: 1, longest: slice });
    else {
      row.seconds += slice.seconds;
      row.times += 1;
      if (slice.seconds > row.longest.seconds) row.longest = slice;
    }
  }
  return {
    ...window, served,
    rows: KEYS.flatMap((key) => rows.get(key) ?? []),
    exact: served === null || served.turns.every((turn) => sentAt(turn) !== null),
    kept: Math.max(0, (lane.end ?? now) - Math.max(window.until, overAt(trace, lane, served) ?? Infinity)),
  };
}

interface Window {
  from: number;
  until: number;
  open: boolean;
}

function windowOf(trace: Trace, lane: Lane, served: Served | null, now: number): Window {
  const answered = overAt(trace, lane, served);
  if (!served) return { from: lane.start, until: answered ?? Math.max(now, lane.start), open: answered === null };
  const { run, turns, first, last, http } = served;
  const come = http ? http.at - (http.seconds ?? 0) : Infinity;
  const from = Math.min(first ? Math.min(run.span.start, come) : turns[0].start, lane.start);
  // A run that goes on after its request has ended does so in another one.
  const end = last && (run.span.end !== null || lane.end === null) ? run.span.end : (turns.at(-1)?.end ?? null);
  const open = end === null;
  const left = last && !open ? (http?.at ?? -Infinity) : -Infinity;
  return { from, until: Math.max(open ? now : end, answered ?? from, left), open };
}

/** Return when a request's answer was over; null while it goes on.
 *
 * One that ended with a call of its client's tool keeps its KV for a while, and its lane goes on.
 */
function overAt(trace: Trace, lane: Lane, served: Served | null): number | null {
  const pause = trace.pausesOf(lane.id).at(-1);
  if (!pause) return lane.end;
  if (pause.outcome === "followed" || pause.givenUp || (pause.outcome === "lost" && lane.lost)) return pause.at;
  const ended = served?.last ? served.run.span.end : null;
  const behind = ended !== null && pause.at + (pause.seconds ?? Infinity) > ended;
  return behind && pause.at >= (served?.turns.at(-1)?.start ?? Infinity) ? pause.at : lane.end;
}

/** All of a window in slices that lie behind one another; those of one wait share its time. */
function slicesOf(trace: Trace, lane: Lane, served: Served | null, window: Window, now: number): Slice[] {
  const slices: Slice[] = [];
  const latest = new Map<Key, Slice>();
  const put = (key: Key, from: number, until: number, share = 1): void => {
    const [begin, end] = [Math.max(from, window.from), Math.min(until, window.until)];
    if (!(end > begin && share > 0)) return;
    const before = latest.get(key);
    if (before?.until === begin) { // a state that is repeated has other blocks, no other cause
      before.until = end;
      before.seconds += (end - begin) * share;
      return;
    }
    const slice: Slice = { key, from: begin, until: end, seconds: (end - begin) * share };
    latest.set(key, slice);
    slices.push(slice);
  };
  const over = overAt(trace, lane, served);
  const end = Math.max(over ?? now, lane.start);
  outside(served, window.from, lane.start, put);
  for (let row = 0; row < lane.length; row++) {
    const state = lane.state[row];
    if (state === ENDED) continue;
    const [from, until] = [lane.at[row], Math.min(lane.until(row, end), end)];
    if (until <= from) continue;
    if (state === WAITING) waited(trace.waitAt(lane.id, (from + until) / 2), row === lane.length - 1, from, until, put);
    else if (isPause(state)) for (const piece of piecesWithin(trace, lane, from, until, now)) put(`paused-${piece.share}`, piece.from, piece.until);
    else put(COMPUTED[state], from, until);
  }
  behind(served, over ?? Infinity, window.until, put);
  return slices;
}

type Put = (key: Key, from: number, until: number, share?: number) => void;

const COMPUTED: Record<number, Key> = { [LOADING]: "loading", [PREFILL]: "prefill", [RECOMPUTE]: "recompute", [DECODE]: "decode", [LOST]: "lost" };

/** What the server did before the engine had the request. */
function outside(served: Served | null, from: number, until: number, put: Put): void {
  if (!served) return;
  const [turn] = served.turns;
  const read = Math.min(Math.max(served.first ? served.run.span.start : from, from), until);
  const begun = Math.min(Math.max(turn.start, read), until);
  const sent = Math.min(Math.max(sentAt(turn) ?? until, begun), until);
  put("received", from, read);
  put("server", read, begun);
  put("rendering", begun, sent);
  put("handover", sent, until);
}

/** What the server did when the engine was done. */
function behind(served: Served | null, from: number, until: number, put: Put): void {
  if (!served || until <= from) return;
  const read = Math.min(Math.max(served.turns.at(-1)?.end ?? until, from), until);
  const closed = Math.min(Math.max((served.last ? served.run.span.end : null) ?? until, read), until);
  put("answering", from, read);
  put("closing", read, closed);
  put("sent", closed, until);
}

const LACKS: readonly (keyof Lacked)[] = ["blocks", "slots", "tokens", "admission", "line"];

/** A wait by what it lacked, in how many of its steps; one without a record was shorter than two steps, or goes on. */
function waited(wait: WaitEntry | undefined, last: boolean, from: number, until: number, put: Put): void {
  if (!wait) return put(last ? "waiting-open" : "waiting-step", from, until);
  const counted = LACKS.reduce((sum, lack) => sum + (wait.lacked?.[lack] ?? 0), 0);
  const steps = Math.max(wait.steps ?? 0, counted);
  if (!steps) return put("waiting-other", from, until);
  for (const lack of LACKS) put(`waiting-${lack}`, from, until, (wait.lacked?.[lack] ?? 0) / steps);
  put("waiting-other", from, until, (steps - counted) / steps);
}
