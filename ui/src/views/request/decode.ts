// How fast a request decoded, stretch by stretch, and what its steps computed beside it.
import { firstFrom } from "../../charts/downsample";
import { quantile, sorted } from "../../charts/stats";
import { DECODE, type Lane } from "../../model/lane";
import type { StepColumn } from "../../model/records";
import type { Steps } from "../../model/steps";
import type { Trace } from "../../model/trace";
import { fullSteps } from "../memory/budget";

/** A stretch in which a request decoded without a break; null is what is not recorded. */
export interface Stretch {
  from: number;
  until: number;
  open: boolean;
  tokens: number | null;
  /** Seconds for each token. */
  perToken: number | null;
  /** How many steps it took part in, at most. */
  steps: number;
  /** How long one of them took, on average. */
  stepSeconds: number | null;
  /** How many other requests were in a step, on average. */
  beside: number | null;
  /** What its steps did for others, in all. */
  prefillTokens: number;
  recomputeTokens: number;
  copiedBlocks: number;
  /** How long a step of this recording usually takes that has as many requests. */
  usual: number | null;
  /** How many of its steps used up their token budget. */
  full: number;
}

/** A step is scheduled a moment after its requests have entered their states, in seconds. */
const CLOSE = 1e-4;

/** Return the stretches of a request in time order; what goes on ends `now`. */
export function stretchesOf(trace: Trace, lane: Lane, now: number): Stretch[] {
  const { steps } = trace.partOf(lane.id);
  const stretches: Stretch[] = [];
  for (let row = 0; row < lane.length; row++) {
    if (lane.state[row] !== DECODE) continue;
    let last = row;
    while (last + 1 < lane.length && lane.state[last + 1] === DECODE) last += 1;
    const open = last === lane.length - 1;
    const tokens = open ? null : Math.max(0, lane.tokens[last + 1] - lane.tokens[row]);
    stretches.push(stretchOf(steps, lane.at[row], lane.until(last, now), open, tokens));
    row = last;
  }
  return stretches;
}

function stretchOf(steps: Steps, from: number, until: number, open: boolean, tokens: number | null): Stretch {
  const first = firstFrom(steps.at, steps.length, from - CLOSE);
  const behind = Math.max(first, firstFrom(steps.at, steps.length, until - CLOSE));
  const count = behind - first;
  const sum = (name: StepColumn): number => {
    let all = 0;
    for (let row = first; row < behind; row++) all += steps.columns[name][row];
    return all;
  };
  const seconds = count ? sum("seconds") / count : null;
  const running = count && steps.known.has("running") ? sum("running") / count : null;
  // Each step decodes a token, unless several are guessed at once.
  const decoded = tokens ?? (open ? count : 0);
  return {
    from, until, open, tokens, steps: count, stepSeconds: seconds,
    perToken: decoded > 0 && until > from ? (until - from) / decoded : null,
    beside: running === null ? null : Math.max(0, running - 1),
    prefillTokens: sum("prefill_tokens"),
    recomputeTokens: sum("recompute_tokens"),
    copiedBlocks: sum("saved_blocks") + sum("loaded_blocks"),
    usual: running === null ? null : usualStep(steps, running),
    full: fullSteps(steps, first, behind),
  };
}

/** Return the seconds for each decoded token, over all stretches that have ended; null where there are none. */
export function perTokenOf(stretches: readonly Stretch[]): number | null {
  const ended = stretches.filter((one) => one.tokens !== null && one.tokens > 0);
  const tokens = ended.reduce((sum, one) => sum + (one.tokens ?? 0), 0);
  return tokens ? ended.reduce((sum, one) => sum + one.until - one.from, 0) / tokens : null;
}

/** Steps of a recording are compared with those that have as many requests, within a fifth. */
const FINENESS = 4;
/** Fewer steps say nothing of what is usual. */
const ENOUGH = 8;
const bucketOf = (running: number): number => Math.round(Math.log2(Math.max(1, running)) * FINENESS);
const tables = new WeakMap<Steps, { length: number; medians: Map<number, number> }>();

/** Return how long a step with `running` requests takes in a recording, at the median; null where there are too few. */
export function usualStep(steps: Steps, running: number): number | null {
  let table = tables.get(steps);
  // A live recording is measured anew when it has grown by a quarter.
  if (!table || steps.length > table.length * 1.25) tables.set(steps, (table = { length: steps.length, medians: mediansOf(steps) }));
  return table.medians.get(bucketOf(running)) ?? null;
}

function mediansOf(steps: Steps): Map<number, number> {
  const groups = new Map<number, number[]>();
  for (let row = 0; row < steps.length; row++) {
    const { seconds, running, decode_tokens } = steps.columns;
    if (!(decode_tokens[row] > 0)) continue;
    const bucket = bucketOf(running[row]);
    const group = groups.get(bucket);
    if (group) group.push(seconds[row]);
    else groups.set(bucket, [seconds[row]]);
  }
  const medians = new Map<number, number>();
  for (const [bucket, seconds] of groups) {
    if (seconds.length >= ENOUGH) medians.set(bucket, quantile(sorted(seconds), 0.5));
  }
  return medians;
}

/** By which factor a stretch's steps took longer than usual; null where they did not, or nothing is known. */
export function slowdown({ stepSeconds, usual }: Stretch): number | null {
  if (stepSeconds === null || !usual) return null;
  return stepSeconds > 1.25 * usual ? stepSeconds / usual : null;
}
