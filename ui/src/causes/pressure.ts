// What went on in the engine during a stretch, as sums over its steps that any stretch can be cut from.
import { firstFrom } from "../charts/downsample";
import { quantile, sorted } from "../charts/stats";
import { grown } from "../model/columns";
import type { Steps } from "../model/steps";

/** A row enters its state when its step is scheduled; clocks of records are rounded, in seconds. */
const CLOSE = 1e-4;
const SUMS = ["seconds", "running", "paused", "held", "extra"] as const;
type Sum = (typeof SUMS)[number];

export class Pressure {
  /** How long a step takes that only decodes, at the median; null where none is recorded. */
  usual: number | null = null;
  private length = 0;
  /** At which length `usual` was found. */
  private found = 0;
  /** How often the steps had been put in another order by then. */
  private sorts = 0;
  /** `sums[name][i]` is the sum over all steps before `i`. */
  private readonly sums: Record<Sum, Float64Array>;

  constructor(private readonly steps: Steps) {
    this.sums = Object.fromEntries(SUMS.map((name) => [name, new Float64Array(64)])) as Record<Sum, Float64Array>;
    this.update();
  }

  /** Take in the steps that have come since. They are added at the end, so that a live page does little. */
  update(): void {
    const { steps } = this;
    if (steps.sorts !== this.sorts || steps.length > 2 * this.found) {
      this.usual = usualOf(steps);
      this.found = steps.length;
      this.length = 0;
    }
    for (const name of SUMS) this.sums[name] = grown(this.sums[name], steps.length + 1);
    for (let row = this.length; row < steps.length; row++) this.add(row);
    this.length = steps.length;
    this.sorts = steps.sorts;
  }

  private add(row: number): void {
    const of = this.steps.columns;
    const seconds = of.seconds[row];
    const prompts = of.prefill_tokens[row] + of.recompute_tokens[row] > 0;
    const own: Record<Sum, number> = {
      seconds,
      running: of.running[row] * seconds,
      paused: of.paused_blocks[row] * seconds,
      held: (of.paused_blocks[row] + of.running_blocks[row]) * seconds,
      extra: prompts && this.usual !== null ? Math.max(0, seconds - this.usual) : 0,
    };
    for (const name of SUMS) this.sums[name][row + 1] = this.sums[name][row] + own[name];
  }

  /** Return how many requests ran in the steps of a stretch, on average; null where there were none. */
  running(from: number, until: number): number | null {
    if (!this.steps.known.has("running")) return null;
    const seconds = this.over("seconds", from, until);
    return seconds > 0 ? this.over("running", from, until) / seconds : null;
  }

  /** Return which share of the held blocks was held by paused requests; 0 where nothing is known. */
  pausedShare(from: number, until: number): number {
    const held = this.over("held", from, until);
    return held > 0 ? this.over("paused", from, until) / held : 0;
  }

  /** Return by how many seconds steps lasted longer since they computed prompts, beside what they decoded. */
  heldUp(from: number, until: number): number {
    return Math.min(this.over("extra", from, until), Math.max(0, until - from));
  }

  private over(name: Sum, from: number, until: number): number {
    const { at } = this.steps;
    const first = firstFrom(at, this.length, from - CLOSE);
    const behind = Math.max(first, firstFrom(at, this.length, until - CLOSE));
    return this.sums[name][behind] - this.sums[name][first];
  }
}

function usualOf(steps: Steps): number | null {
  const { seconds, decode_tokens, prefill_tokens, recompute_tokens } = steps.columns;
  const alone: number[] = [];
  for (let row = 0; row < steps.length; row++) {
    if (decode_tokens[row] > 0 && prefill_tokens[row] + recompute_tokens[row] === 0) alone.push(seconds[row]);
  }
  return alone.length ? quantile(sorted(alone), 0.5) : null;
}
