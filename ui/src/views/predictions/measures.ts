// Measures of predictions; `scheduler/records/accuracy.py` defines the same ones.
import { mean } from "../../charts/stats";

/** A bin of a calibration curve: the means of what was predicted and of what came. */
export interface CurveBin {
  count: number;
  predicted: number;
  actual: number;
}

const BINS = 10;
const MIN_BIN_PAIRS = 20;

/** The mean of |predicted − actual|; NaN of nothing. */
export function absoluteError(predicted: readonly number[], actual: readonly number[]): number {
  return mean(predicted.map((value, at) => Math.abs(value - actual[at])));
}

/** The mean squared error of probabilities; NaN of nothing. */
export function brierScore(predicted: readonly number[], actual: readonly number[]): number {
  return mean(predicted.map((value, at) => (value - actual[at]) ** 2));
}

/** The share of pairs of different actual values that predictions order rightly; equal ones count as half.
 *
 * Of actual values 0 and 1 it is the area under the ROC curve. NaN if all actual values are equal.
 */
export function pairAccuracy(predicted: readonly number[], actual: readonly number[]): number {
  const ranks = new Map([...new Set(predicted)].sort((a, b) => a - b).map((value, rank) => [value, rank]));
  const order = predicted.map((_, at) => at).sort((a, b) => actual[a] - actual[b]);
  const tree = new Float64Array(ranks.size + 1);
  const counts = new Float64Array(ranks.size);
  let right = 0;
  let pairs = 0;
  for (let first = 0; first < order.length;) {
    let behind = first;
    while (behind < order.length && actual[order[behind]] === actual[order[first]]) behind += 1;
    const places = order.slice(first, behind).map((at) => ranks.get(predicted[at]) as number);
    for (const place of places) {
      for (let at = place; at > 0; at -= at & -at) right += tree[at];
      right += counts[place] / 2;
    }
    pairs += first * places.length;
    for (const place of places) {
      counts[place] += 1;
      for (let at = place + 1; at < tree.length; at += at & -at) tree[at] += 1;
    }
    first = behind;
  }
  return pairs ? right / pairs : NaN;
}

/** The calibration curve of probabilities, in ten bins of equal width; empty ones are left out. */
export function curveOfChances(predicted: readonly number[], actual: readonly number[]): CurveBin[] {
  const bins = Array.from({ length: BINS }, (): [number[], number[]] => [[], []]);
  predicted.forEach((value, at) => {
    const bin = bins[Math.max(0, Math.min(BINS - 1, Math.floor(value * BINS)))];
    bin[0].push(value);
    bin[1].push(actual[at]);
  });
  return bins.filter(([all]) => all.length).map(([p, a]) => ({ count: p.length, predicted: mean(p), actual: mean(a) }));
}

/** The calibration curve of means, in up to ten bins of about as many predictions. */
export function curveOfNumbers(predicted: readonly number[], actual: readonly number[]): CurveBin[] {
  const order = predicted.map((_, at) => at).sort((a, b) => predicted[a] - predicted[b] || actual[a] - actual[b]);
  const size = Math.ceil(order.length / Math.max(1, Math.min(BINS, Math.floor(order.length / MIN_BIN_PAIRS)))) || 1;
  const bins: CurveBin[] = [];
  for (let first = 0; first < order.length; first += size) {
    const part = order.slice(first, first + size);
    bins.push({ count: part.length, predicted: mean(part.map((at) => predicted[at])), actual: mean(part.map((at) => actual[at])) });
  }
  return bins;
}

/** The mean distance of a curve from the diagonal, by its bins' counts; NaN of nothing. */
export function calibrationError(curve: readonly CurveBin[]): number {
  const count = curve.reduce((total, bin) => total + bin.count, 0);
  return curve.reduce((total, bin) => total + bin.count * Math.abs(bin.predicted - bin.actual), 0) / count;
}
