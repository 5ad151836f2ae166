// Real time to drawn time: idle gaps are folded to a short stretch each.
import type { Interval } from "./busy";

export interface Fold extends Interval {
  /** Where it lies on the drawn axis. */
  drawn: number;
}

export class TimeMap {
  readonly folds: readonly Fold[];
  /** How much of the drawn axis a fold takes, in seconds. */
  readonly stub: number;

  constructor(gaps: readonly Interval[] = [], stub = 0) {
    this.stub = stub;
    let cut = 0;
    this.folds = gaps.map((gap) => {
      const fold = { ...gap, drawn: gap.from - cut };
      cut += gap.to - gap.from - stub;
      return fold;
    });
  }

  /** The drawn position of a time. */
  draw(time: number): number {
    const fold = last(this.folds, (one) => one.from <= time);
    if (!fold) return time;
    if (time >= fold.to) return fold.drawn + this.stub + (time - fold.to);
    return fold.drawn + ((time - fold.from) / (fold.to - fold.from)) * this.stub;
  }

  /** The time at a drawn position. */
  time(drawn: number): number {
    const fold = last(this.folds, (one) => one.drawn <= drawn);
    if (!fold) return drawn;
    const into = drawn - fold.drawn;
    if (into >= this.stub) return fold.to + (into - this.stub);
    return fold.from + (into / this.stub) * (fold.to - fold.from);
  }
}

/** The last fold that `holds`; those that hold come first. */
function last(folds: readonly Fold[], holds: (fold: Fold) => boolean): Fold | undefined {
  let low = 0;
  let high = folds.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (holds(folds[middle])) low = middle + 1;
    else high = middle;
  }
  return folds[low - 1];
}

/** Part of the drawn axis on `width` pixels. */
export class Scale {
  readonly map: TimeMap;
  readonly from: number;
  readonly to: number;
  readonly width: number;
  private readonly start: number;
  private readonly perPixel: number;

  constructor(map: TimeMap, from: number, to: number, width: number) {
    this.map = map;
    this.from = from;
    this.to = to;
    this.width = width;
    this.start = map.draw(from);
    this.perPixel = Math.max(map.draw(to) - this.start, 1e-9) / Math.max(width, 1);
  }

  /** The pixel of a time. */
  x(time: number): number {
    return (this.map.draw(time) - this.start) / this.perPixel;
  }

  /** The time at a pixel. */
  time(x: number): number {
    return this.map.time(this.start + x * this.perPixel);
  }

  /** Seconds that a pixel stands for where nothing is folded. */
  get secondsPerPixel(): number {
    return this.perPixel;
  }
}
