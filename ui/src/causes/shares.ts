// What each request has taken of the engine: the time of its steps, and the blocks that it held.
import { firstFrom } from "../charts/downsample";
import { DECODE, type Lane, PREFILL, RECOMPUTE } from "../model/lane";
import type { Steps } from "../model/steps";
import type { Trace } from "../model/trace";

/** A row enters its state when its step is scheduled; clocks of records are rounded, in seconds. */
const CLOSE = 1e-4;
/** The states in which a request is computed, and the steps' tokens of each. */
const COMPUTED = [
  [PREFILL, "prefill_tokens"], [RECOMPUTE, "recompute_tokens"], [DECODE, "decode_tokens"],
] as const;

/** Seconds of the engine's steps, and block-seconds of device memory. */
export interface Taken {
  seconds: number;
  blockSeconds: number;
}

/**
 * The shares of all requests in [from, until).
 *
 * A step's seconds are divided by the query tokens that it computed for the first time, again, and
 * decoded; requests in the same of these states have equal parts. What nobody is known for stays
 * unshared, so that all shares together are never more than the steps took.
 */
export class Shares {
  /** Seconds of all steps of the stretch. */
  readonly seconds: number;
  private readonly first: number;
  private readonly behind: number;
  /** By state: what a request in it has had of the stretch's steps before each one. */
  private readonly sums = new Map<number, Float64Array>();

  constructor(private readonly trace: Trace, private readonly from: number, private readonly until: number, private readonly blockTokens: number) {
    const { steps } = trace;
    this.first = Math.max(0, firstFrom(steps.at, steps.length, from) - 1);
    this.behind = firstFrom(steps.at, steps.length, until);
    const inside = secondsWithin(steps, this.first, this.behind, from, until);
    this.seconds = inside.reduce((sum, each) => sum + each, 0);
    for (const [state, name] of COMPUTED) this.sums.set(state, this.summed(state, steps.get(name), inside));
  }

  /** What a request has had of the stretch, in those of its rows that `takes` names; `now` ends what goes on. */
  of(lane: Lane, now: number, takes: (row: number) => boolean = () => true): Taken {
    const taken = { seconds: 0, blockSeconds: 0 };
    for (const row of this.rowsOf(lane)) {
      if (!takes(row)) continue;
      taken.seconds += this.secondsOf(lane, row, now);
      taken.blockSeconds += this.blockSecondsOf(lane, row, now);
    }
    return taken;
  }

  /** The rows of a lane that reach into the stretch, or into the step that does. */
  private *rowsOf(lane: Lane): Generator<number> {
    const begin = this.first < this.behind ? Math.min(this.from, this.trace.steps.at[this.first]) : this.from;
    for (let row = Math.max(0, lane.rowAt(begin)); row < lane.length && lane.at[row] < this.until; row++) yield row;
  }

  private secondsOf(lane: Lane, row: number, now: number): number {
    const sums = this.sums.get(lane.kv[row]);
    if (!sums) return 0;
    const [begin, end] = this.stepsOf(lane, row, now);
    return end > begin ? sums[end - this.first] - sums[begin - this.first] : 0;
  }

  /** Blocks are recorded when the state changes: while a request decodes they grow with its tokens. */
  private blockSecondsOf(lane: Lane, row: number, now: number): number {
    const end = lane.until(row, now);
    const begin = lane.at[row];
    const seconds = Math.min(end, this.until) - Math.max(begin, this.from);
    if (seconds <= 0) return 0;
    let blocks = lane.blocks[row];
    if (blocks > 0 && lane.kv[row] === DECODE && row + 1 < lane.length && this.blockTokens > 0) {
      const middle = (Math.max(begin, this.from) + Math.min(end, this.until)) / 2;
      blocks += (Math.max(0, lane.tokens[row + 1] - lane.tokens[row]) / this.blockTokens) * ((middle - begin) / (end - begin));
    }
    return blocks * seconds;
  }

  private stepsOf(lane: Lane, row: number, now: number): [begin: number, end: number] {
    const { at } = this.trace.steps;
    const begin = firstFrom(at, this.behind, lane.at[row] - CLOSE);
    // What goes on is in the newest step, too.
    const goesOn = row + 1 === lane.length && lane.end === null;
    const end = goesOn ? this.behind : firstFrom(at, this.behind, lane.until(row, now) - CLOSE);
    return [Math.max(this.first, begin), Math.max(this.first, end)];
  }

  /** For one state: the sum over steps of what one of the requests in it has had. */
  private summed(state: number, tokens: Float64Array, inside: Float64Array): Float64Array {
    const length = this.behind - this.first;
    const counts = new Float64Array(length + 1);
    for (const lane of this.trace.lanes) {
      if (!lane.length || !lane.seen(state)) continue;
      for (const row of this.rowsOf(lane)) {
        if (lane.kv[row] !== state) continue;
        const [begin, end] = this.stepsOf(lane, row, Infinity);
        if (end <= begin) continue;
        counts[begin - this.first] += 1;
        counts[end - this.first] -= 1;
      }
    }
    const { columns } = this.trace.steps;
    const sums = new Float64Array(length + 1);
    let here = 0;
    for (let i = 0; i < length; i++) {
      here += counts[i];
      const step = this.first + i;
      const all = columns.prefill_tokens[step] + columns.recompute_tokens[step] + columns.decode_tokens[step];
      sums[i + 1] = sums[i] + (here > 0 && all > 0 ? (inside[i] * tokens[step]) / all / here : 0);
    }
    return sums;
  }
}

/** The seconds of each step within a stretch. */
function secondsWithin(steps: Steps, first: number, behind: number, from: number, until: number): Float64Array {
  const inside = new Float64Array(behind - first);
  const { at, seconds } = steps.columns;
  for (let step = first; step < behind; step++) {
    inside[step - first] = Math.max(0, Math.min(at[step] + seconds[step], until) - Math.max(at[step], from));
  }
  return inside;
}
