// Figures over time: the window in bins of equal width on the drawn axis, and a value for each.
import type { Layer } from "../../charts/timechart";
import { quantile } from "../../charts/stats";
import { above } from "../../model/columns";
import type { HttpEntry } from "../../model/records";
import type { Steps } from "../../model/steps";
import type { TimeMap } from "../../model/timemap";
import type { Request } from "../../causes/figures";
import { ANSWERS, type Answer, answerOf, tokensIn } from "./summary";

/** Bin `n` is [edges[n], edges[n + 1]) in seconds. */
export interface Bins {
  edges: Float64Array;
  /** Where each bin begins and ends on the drawn axis: two places, so that a bin alone is a line. */
  x: Float64Array;
}

/** A bin ends just before the next begins. */
const JUST = 0.999;

/** Return `count` bins of a window; idle time that is folded is as narrow in them as it is drawn. */
export function binsOf(map: TimeMap, from: number, until: number, count: number): Bins {
  const first = map.draw(from);
  const width = (map.draw(until) - first) / count;
  const edges = Float64Array.from({ length: count + 1 }, (_, place) => map.time(first + place * width));
  edges[0] = from;
  edges[count] = until;
  const x = Float64Array.from({ length: 2 * count }, (_, place) => first + width * ((place >> 1) + (place & 1) * JUST));
  return { edges, x };
}

/** A chart that is drawn: its layers in drawing order, and what each bin says. */
export interface Series {
  layers: Layer[];
  /** The values that are told, by the layers' names; not stacked. */
  values: { name: string; colour: string; dash?: number[]; pattern?: Layer["pattern"]; each: (number | null)[] }[];
  /** Of how many requests the percentiles of each bin are; of sums there is none. */
  samples?: number[];
}

const LINES = [
  { name: "p50", share: 0.5, colour: "--accent", dash: undefined },
  { name: "p95", share: 0.95, colour: "--series-b", dash: [6, 3] },
  { name: "p99", share: 0.99, colour: "--bad", dash: [2, 2] },
] as const;

/** Return the percentiles of what requests had that ended in each bin, in milliseconds. `requests` are by their ends. */
export function latencies(requests: readonly Request[], bins: Bins, of: (request: Request) => number | null): Series {
  const found = LINES.map((): (number | null)[] => []);
  const samples: number[] = [];
  const scratch = new Float64Array(requests.length);
  let place = 0;
  for (let bin = 0; bin + 1 < bins.edges.length; bin++) {
    let length = 0;
    for (; place < requests.length && (requests[place].end ?? 0) < bins.edges[bin + 1]; place++) {
      const value = of(requests[place]);
      if (value !== null) scratch[length++] = 1000 * value;
    }
    const ascending = scratch.subarray(0, length).sort();
    LINES.forEach(({ share }, line) => found[line].push(length ? quantile(ascending, share) : null));
    samples.push(length);
  }
  const values = LINES.map(({ name, colour, dash }, line) => ({ name, colour, dash: dash && [...dash], each: found[line] }));
  return { values, samples, layers: values.map(({ each, ...line }) => ({ ...line, kind: "line" as const, values: twice(each) })) };
}

const WORK = [
  { name: "decoded", colour: "--state-decode", pattern: "plain", of: "decoded" },
  { name: "prefilled", colour: "--state-prefill", pattern: "plain", of: "prefilled" },
  { name: "recomputed", colour: "--state-recompute", pattern: "crossed", of: "recomputed" },
] as const;

/** Return the tokens of each bin, of all engines together, by what they were computed for, per second of its time. */
export function throughput(engines: readonly Steps[], bins: Bins): Series {
  const each = WORK.map((): number[] => []);
  for (let bin = 0; bin + 1 < bins.edges.length; bin++) {
    const [from, until] = [bins.edges[bin], bins.edges[bin + 1]];
    const tokens = engines.map((steps) => tokensIn(steps, from, until));
    WORK.forEach(({ of }, layer) => each[layer].push(tokens.reduce((sum, one) => sum + one[of], 0) / Math.max(until - from, 1e-9)));
  }
  return stacked(WORK.map(({ name, colour, pattern }, layer) => ({ name, colour, pattern, each: each[layer] })));
}

const ANSWER_LAYERS: Record<Answer, { colour: string; pattern: Layer["pattern"] }> = {
  answered: { colour: "--state-decode", pattern: "plain" },
  refused: { colour: "--state-paused", pattern: "hatched" },
  failed: { colour: "--bad", pattern: "crossed" },
  left: { colour: "--ink-3", pattern: "dotted" },
};

/** Return how many requests were answered, refused, failed or left in each bin; only what there is at all. */
export function answers(entries: readonly HttpEntry[], bins: Bins): Series {
  const counts = Object.fromEntries(ANSWERS.map((name) => [name, zeros(bins)])) as Record<Answer, number[]>;
  for (const { at, status, count = 1 } of entries) {
    const bin = binAt(bins, at);
    if (bin >= 0) counts[answerOf(status)][bin] += count;
  }
  const there = ANSWERS.filter((name) => name === "answered" || counts[name].some((count) => count > 0));
  return stacked(there.map((name) => ({ name, ...ANSWER_LAYERS[name], each: counts[name] })));
}

/** Return how many requests of the engine ended in each bin. */
export function endings(requests: readonly Request[], bins: Bins): Series {
  const counts = zeros(bins);
  for (const request of requests) {
    const bin = binAt(bins, request.end ?? NaN);
    if (bin >= 0) counts[bin] += 1;
  }
  return stacked([{ name: "ended", colour: "--state-decode", pattern: "plain", each: counts }]);
}

/** The bin that a time lies in; -1: none. */
export function binAt(bins: Bins, time: number): number {
  const { edges } = bins;
  if (!(time >= edges[0] && time < edges[edges.length - 1])) return -1;
  return above(edges, edges.length, time) - 1;
}

const zeros = (bins: Bins): number[] => new Array<number>(bins.edges.length - 1).fill(0);

/** The values at the beginnings and the ends of their bins. */
const twice = (each: readonly (number | null)[]): (number | null)[] => each.flatMap((value) => [value, value]);

function stacked(values: { name: string; colour: string; pattern: Layer["pattern"]; each: number[] }[]): Series {
  const layers: Layer[] = [];
  let below = values[0].each.map(() => 0);
  for (const { each, ...layer } of values) {
    below = below.map((sum, bin) => sum + each[bin]);
    layers.unshift({ ...layer, kind: "area", values: twice(below) });
  }
  return { layers, values };
}
