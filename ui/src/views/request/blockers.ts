// Who held blocks, ran or was computed while a request waited: from the lanes of the others in that window.
import { DECODE, ENDED, type Lane, PREFILL, RECOMPUTE, STATES, WAITING } from "../../model/lane";
import type { Trace } from "../../model/trace";

export interface Blocker {
  lane: Lane;
  /** Device blocks times seconds within the window. */
  blockSeconds: number;
  /** Blocks on average while it held any, and for how long that was. */
  meanBlocks: number;
  seconds: number;
  /** Seconds by state, as indices of `STATES`. */
  states: Float64Array;
}

/** The requests other than `request` that held device blocks in [from, until], largest holders first. */
export function blockers(trace: Trace, request: string, from: number, until: number): Blocker[] {
  const found: Blocker[] = [];
  for (const lane of trace.lanes) {
    if (lane.id === request || !lane.length || lane.start >= until || (lane.end ?? Infinity) <= from) continue;
    const blocker = held(lane, from, until);
    if (blocker) found.push(blocker);
  }
  return found.sort((a, b) => b.blockSeconds - a.blockSeconds);
}

function held(lane: Lane, from: number, until: number): Blocker | null {
  const states = new Float64Array(STATES.length);
  let blockSeconds = 0;
  let seconds = 0;
  for (let i = Math.max(0, lane.rowAt(from)); i < lane.length && lane.at[i] < until; i++) {
    if (lane.kv[i] === ENDED || lane.kv[i] === WAITING || lane.blocks[i] <= 0) continue;
    const length = Math.min(lane.until(i, until), until) - Math.max(lane.at[i], from);
    if (length <= 0) continue;
    states[lane.state[i]] += length;
    blockSeconds += lane.blocks[i] * length;
    seconds += length;
  }
  return blockSeconds > 0 ? { lane, blockSeconds, meanBlocks: blockSeconds / seconds, seconds, states } : null;
}

/** The state that another request was in for longest. */
export function mainState({ states }: { states: Float64Array }): number {
  return states.reduce((best, seconds, state) => (seconds > states[best] ? state : best), 0);
}

/** A request that was in some states meanwhile, and for how long in all. */
export interface Companion {
  lane: Lane;
  seconds: number;
  /** Seconds by state, as indices of `STATES`. */
  states: Float64Array;
}

/** The requests other than `request` that were in one of some states in [from, until], the longest first. */
export function companions(
  trace: Trace, request: string, from: number, until: number, counts: (state: number) => boolean,
): Companion[] {
  const found: Companion[] = [];
  for (const lane of trace.lanes) {
    if (lane.id === request || !lane.length || lane.start >= until || (lane.end ?? Infinity) <= from) continue;
    const states = new Float64Array(STATES.length);
    let seconds = 0;
    for (let i = Math.max(0, lane.rowAt(from)); i < lane.length && lane.at[i] < until; i++) {
      const state = lane.state[i];
      const length = Math.min(lane.until(i, until), until) - Math.max(lane.at[i], from);
      if (state === ENDED || !counts(state) || length <= 0) continue;
      states[state] += length;
      seconds += length;
    }
    if (seconds > 0) found.push({ lane, seconds, states });
  }
  return found.sort((a, b) => b.seconds - a.seconds);
}

/** Whether a request in this state has a slot of the running batch. */
export const hasSlot = (state: number): boolean => state === PREFILL || state === RECOMPUTE || state === DECODE;
/** Whether it takes more of a step's tokens than one. */
export const prefills = (state: number): boolean => state === PREFILL || state === RECOMPUTE;
