// Where the time of one request went, by account, and how two requests differ in that.
import { type Lane, STATES, isPause } from "../../model/lane";
import type { Trace } from "../../model/trace";
import { STATE_NAMES } from "../timeline/shape";

/** Seconds of each account by its name, such as "waiting", "decode" or "tool search". */
export type Accounts = ReadonlyMap<string, number>;

/** The time of a request; `now` ends what goes on. A pause counts for its tool, as far as records tell of it. */
export function accountsOf(trace: Trace, lane: Lane, now: number): Accounts {
  const found = new Map<string, number>();
  const add = (name: string, seconds: number): void => void found.set(name, (found.get(name) ?? 0) + seconds);
  for (let row = 0; row < lane.length; row++) {
    const state = lane.state[row];
    const seconds = lane.until(row, now) - lane.at[row];
    if (!(seconds > 0) || STATES[state] === "ended") continue;
    add(isPause(state) ? pausedFor(trace, lane, lane.at[row]) : STATE_NAMES[STATES[state]], seconds);
  }
  return found;
}

/** The seconds of a request from its arrival to its end or now. */
export const lasted = (lane: Lane, now: number): number => (lane.end ?? now) - lane.start;

/** An account of A and of B. */
export interface Compared {
  name: string;
  a: number;
  b: number;
}

/** Times of records are rounded: what differs by less is the same, in seconds. */
const CLOSE = 1e-4;

/** Both requests' accounts, those that differ most first. */
export function differing(a: Accounts, b: Accounts): Compared[] {
  const names = new Set([...a.keys(), ...b.keys()]);
  return [...names]
    .map((name) => ({ name, a: a.get(name) ?? 0, b: b.get(name) ?? 0 }))
    .map((one) => (Math.abs(one.b - one.a) < CLOSE ? { ...one, b: one.a } : one))
    .sort((one, two) => Math.abs(two.b - two.a) - Math.abs(one.b - one.a));
}

function pausedFor(trace: Trace, lane: Lane, at: number): string {
  const pause = trace.pausesOf(lane.id).findLast((one) => one.at <= at + 1e-4);
  if (pause?.person) return `person, ${pause.tool ?? "a tool"}`;
  return pause?.tool ? `tool ${pause.tool}` : "paused";
}
