// Figures of samples: quantiles, bins on a logarithmic axis, and how far predictions are off.

/** Return the finite values in ascending order. */
export function sorted(values: Iterable<number>): Float64Array {
  const kept: number[] = [];
  for (const value of values) if (Number.isFinite(value)) kept.push(value);
  return Float64Array.from(kept).sort();
}

/** Return the quantile of ascending values, linear between neighbours; NaN if there are none. */
export function quantile(ascending: ArrayLike<number>, share: number): number {
  const count = ascending.length;
  if (count === 0) return NaN;
  const place = share * (count - 1);
  const below = Math.floor(place);
  const low = ascending[below];
  const high = ascending[Math.min(below + 1, count - 1)];
  return low + (high - low) * (place - below);
}

/** Return the mean; NaN of nothing. */
export function mean(values: ArrayLike<number>): number {
  return values.length === 0 ? NaN : sum(values) / values.length;
}

/** Return the sum. */
export function sum(values: ArrayLike<number>): number {
  let total = 0;
  for (let at = 0; at < values.length; at++) total += values[at];
  return total;
}

/** Return the largest value, `floor` of none: a call with as many arguments overflows the stack. */
export function largest(values: Iterable<number>, floor = -Infinity): number {
  let most = floor;
  for (const value of values) if (value > most) most = value;
  return most;
}

/** Return the smallest value, `ceiling` of none. */
export function smallest(values: Iterable<number>, ceiling = Infinity): number {
  let least = ceiling;
  for (const value of values) if (value < least) least = value;
  return least;
}

/** A histogram: bin `n` counts the values in [edges[n], edges[n + 1]). */
export interface Bins {
  edges: number[];
  counts: number[];
}

/** Count positive values in bins that are equally wide on a logarithmic axis.
 *
 * Edges are powers of 10 ^ (1 / perDecade), so that charts of different samples have the same.
 */
export function logBins(values: Iterable<number>, perDecade: number): Bins {
  const found = new Map<number, number>();
  for (const value of values) {
    if (!(value > 0) || !Number.isFinite(value)) continue;
    // A value on an edge belongs to the bin above; the hair makes up for the logarithm's rounding.
    const bin = Math.floor(Math.log10(value) * perDecade + 1e-9);
    found.set(bin, (found.get(bin) ?? 0) + 1);
  }
  if (found.size === 0) return { edges: [], counts: [] };
  const first = smallest(found.keys());
  const last = largest(found.keys());
  const edges: number[] = [];
  const counts: number[] = [];
  for (let bin = first; bin <= last; bin++) {
    edges.push(10 ** (bin / perDecade));
    counts.push(found.get(bin) ?? 0);
  }
  edges.push(10 ** ((last + 1) / perDecade));
  return { edges, counts };
}

/** How far predictions are off, as predicted over actual.
 *
 * `median` is the bias (1: none, 2: twice too long), `low` and `high` are the 10th and the 90th
 * percentile, `within` the share of predictions that are off by less than a factor of two.
 */
export interface Misjudged {
  count: number;
  median: number;
  low: number;
  high: number;
  within: number;
}

/** Compare predictions with what came; pairs that are not both positive are left out. */
export function misjudged(predicted: ArrayLike<number>, actual: ArrayLike<number>): Misjudged {
  const ratios: number[] = [];
  let near = 0;
  for (let at = 0; at < predicted.length; at++) {
    const ratio = predicted[at] / actual[at];
    if (!(ratio > 0) || !Number.isFinite(ratio)) continue;
    ratios.push(ratio);
    if (ratio > 0.5 && ratio < 2) near++;
  }
  const ascending = sorted(ratios);
  return {
    count: ratios.length,
    median: quantile(ascending, 0.5),
    low: quantile(ascending, 0.1),
    high: quantile(ascending, 0.9),
    within: near / ratios.length,
  };
}
