// The pure parts of the charts: figures of samples, which rows are drawn, and axes.
import { describe, expect, test } from "vitest";
import { firstFrom, peaks } from "../src/charts/downsample";
import { linesOf } from "../src/charts/histogram";
import { linearScale, logScale, logTicks, roundStep, secondsTick } from "../src/charts/scale";
import { logBins, misjudged, quantile, sorted } from "../src/charts/stats";

describe("quantiles", () => {
  test("are linear between neighbours, as numpy's", () => {
    const values = sorted([4, 1, 3, 2]);
    expect(quantile(values, 0)).toBe(1);
    expect(quantile(values, 0.5)).toBe(2.5);
    expect(quantile(values, 0.9)).toBeCloseTo(3.7, 12);
    expect(quantile(values, 1)).toBe(4);
  });
  test("leave out what is no number, and say nothing of nothing", () => {
    expect([...sorted([2, NaN, 1, Infinity])]).toEqual([1, 2]);
    expect(quantile([], 0.5)).toBeNaN();
  });
});

describe("bins on a logarithmic axis", () => {
  test("count every positive value once, on edges too", () => {
    const bins = logBins([0.1, 0.5, 1, 9.99, 10, 0, -1, NaN], 1);
    expect(bins.edges.map((edge) => +edge.toPrecision(6))).toEqual([0.1, 1, 10, 100]);
    expect(bins.counts).toEqual([2, 2, 1]);
  });
  test("put edges of a finer grid where they belong", () => {
    const edges = Array.from({ length: 41 }, (_, at) => 10 ** (at / 8));
    expect(logBins(edges, 8).counts).toEqual(new Array(41).fill(1));
  });
  test("are none without values", () => {
    expect(logBins([0, -3], 4)).toEqual({ edges: [], counts: [] });
  });
});

test("predictions are judged by predicted over actual", () => {
  const found = misjudged([1, 2, 8, 3, 5], [2, 2, 2, 2, 0]);
  expect(found.count).toBe(4);
  expect(found.median).toBe(1.25);
  expect(found.low).toBeCloseTo(0.65, 12);
  expect(found.high).toBeCloseTo(3.25, 12);
  // 1 and 1.5; half and four times are not within a factor of two.
  expect(found.within).toBe(0.5);
});

describe("rows to draw", () => {
  const count = 100_000;
  const at = Float64Array.from({ length: count }, (_, row) => row * 0.01);
  const wave = Float64Array.from({ length: count }, (_, row) => 100 + Math.sin(row / 900) * 50);
  wave[31_337] = 7000;
  wave[77_777] = -3;

  const begins = Float64Array.from({ length: 500 }, (_, bucket) => bucket * 2);

  test("keep every bucket's peaks, in order and few", () => {
    const rows = peaks(0, count, at, begins, [wave]);
    expect(rows.length).toBeLessThanOrEqual(500 * 4);
    expect(rows).toContain(31_337);
    expect(rows).toContain(77_777);
    expect(rows[0]).toBe(0);
    expect(rows.at(-1)).toBe(count - 1);
    expect(rows.every((row, n) => n === 0 || row > rows[n - 1])).toBe(true);
  });
  test("are all where they fit", () => {
    expect(peaks(5, 9, at, begins, [wave])).toEqual([5, 6, 7, 8]);
    expect(peaks(5, 5, at, begins, [wave])).toEqual([]);
  });
  test("of many in one bucket are its extremes and its ends", () => {
    const column = Float64Array.from({ length: 50 }, (_, row) => (row * 7 + 3) % 50);
    const rows = peaks(0, 50, Float64Array.from({ length: 50 }, (_, row) => row), Float64Array.of(0, 40), [column]);
    const part = (from: number, to: number) => rows.filter((row) => row >= from && row < to);
    for (const [from, to] of [[0, 40], [40, 50]] as const) {
      const values = [...column.subarray(from, to)];
      const ends = [from, from + values.indexOf(Math.min(...values)), from + values.indexOf(Math.max(...values)), to - 1];
      expect(part(from, to)).toEqual([...new Set(ends)].sort((a, b) => a - b));
    }
  });
  test("begin at the first that is not before a time", () => {
    const times = Float64Array.of(1, 2, 2, 5);
    expect(firstFrom(times, 4, 2)).toBe(1);
    expect(firstFrom(times, 4, 3)).toBe(3);
    expect(firstFrom(times, 4, 6)).toBe(4);
    expect(firstFrom(times, 2, 5)).toBe(2);
  });
});

describe("labels of percentiles", () => {
  test("stand below one another where they are close", () => {
    expect(linesOf([10, 100, 200])).toEqual([0, 0, 0]);
    expect(linesOf([10, 100, 109])).toEqual([0, 0, 1]);
    expect(linesOf([100, 104, 109, 130])).toEqual([0, 1, 2, 0]);
  });
});

describe("axes", () => {
  test("have round ticks", () => {
    expect(linearScale(37, 0, 100).ticks).toEqual([0, 10, 20, 30, 40]);
    expect(linearScale(0, 0, 100).ticks).toEqual([0, 1]);
    expect(roundStep(0.03)).toBe(0.05);
    expect(logTicks(0.02, 300)).toEqual([0.1, 1, 10, 100]);
    expect(logTicks(4, 60)).toEqual([5, 10, 20, 50]);
    expect(logTicks(12, 18)).toEqual([12, 14, 16, 18]);
    expect(logTicks(1e-9, 1e9).length).toBeLessThanOrEqual(8);
    expect([2e-5, 0.05, 1, 2000].map(secondsTick)).toEqual(["20 µs", "50 ms", "1 s", "2000 s"]);
  });
  test("place values", () => {
    expect(linearScale(40, 100, 0).place(10)).toBe(75);
    const scale = logScale(0.1, 1000, 0, 400);
    expect(scale.place(0.1)).toBeCloseTo(0, 9);
    expect(scale.place(10)).toBeCloseTo(200, 9);
  });
});
