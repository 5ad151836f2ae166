// Who held blocks, ran or was computed while a request waited: from the lanes of the others in that window.
import { eachOther, holds } from "../../causes/holders";
import { DECODE, type Lane, PREFILL, RECOMPUTE, STATES } from "../../model/lane";
import type { Trace } from "../../model/trace";

/** A request that did something meanwhile, and for how long in all. */
export interface Companion {
  lane: Lane;
  seconds: number;
  /** Seconds by state, as indices of `STATES`. */
  states: Float64Array;
  /** Device blocks times seconds within the window. */
  blockSeconds: number;
}

/** One that held device blocks for its seconds. */
export interface Blocker extends Companion {
  meanBlocks: number;
}

/** The requests other than `request` that held device blocks in [from, until), largest holders first. */
export function blockers(trace: Trace, request: string, from: number, until: number): Blocker[] {
  return others(trace, request, from, until, holds)
    .map((one) => ({ ...one, meanBlocks: one.blockSeconds / one.seconds }))
    .sort((a, b) => b.blockSeconds - a.blockSeconds);
}

/** The requests other than `request` that were in one of some states in [from, until), the longest first. */
export function companions(
  trace: Trace, request: string, from: number, until: number, counts: (state: number) => boolean,
): Companion[] {
  return others(trace, request, from, until, (lane, row) => counts(lane.state[row])).sort((a, b) => b.seconds - a.seconds);
}

/** The others with what they did in the rows that count. */
function others(
  trace: Trace, request: string, from: number, until: number, counts: (lane: Lane, row: number) => boolean,
): Companion[] {
  const found = new Map<Lane, Companion>();
  eachOther(trace, request, from, until, (lane, row, seconds) => {
    if (!counts(lane, row)) return;
    let one = found.get(lane);
    if (!one) found.set(lane, (one = { lane, seconds: 0, states: new Float64Array(STATES.length), blockSeconds: 0 }));
    one.seconds += seconds;
    one.states[lane.state[row]] += seconds;
    one.blockSeconds += lane.blocks[row] * seconds;
  });
  return [...found.values()];
}

/** The state that another request was in for longest. */
export function mainState({ states }: { states: Float64Array }): number {
  return states.reduce((best, seconds, state) => (seconds > states[best] ? state : best), 0);
}

/** Whether a request in this state has a slot of the running batch. */
export const hasSlot = (state: number): boolean => state === PREFILL || state === RECOMPUTE || state === DECODE;
/** Whether it takes more of a step's tokens than one. */
export const prefills = (state: number): boolean => state === PREFILL || state === RECOMPUTE;
