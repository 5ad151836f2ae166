// What the timeline draws and finds: stretches, rows, densities, marks under the pointer.
import { describe, expect, it } from "vitest";
import { DECODE, Lane, PAUSED, WAITING } from "../src/model/lane";
import { Scale, TimeMap } from "../src/model/timemap";
import { Trace } from "../src/model/trace";
import { density } from "../src/views/timeline/density";
import { AXIS, GUTTER } from "../src/views/timeline/frame";
import { hit, pauseDuring } from "../src/views/timeline/hit";
import { outcomesOf, rowsOf } from "../src/views/timeline/rows";
import { Segments, segment } from "../src/views/timeline/segments";
import { sample } from "./sample";

const NO_FILTERS = { q: "", tool: "", state: "", outcome: "" };

function laneOf(...rows: [state: string, at: number][]): Lane {
  const lane = new Lane("a", 0);
  for (const [state, at] of rows) lane.add({ state, at, blocks: 1, host: 0, tokens: 1 });
  return lane;
}

function stretches(lane: Lane, from: number, to: number, width: number, now = to): [number, number, number][] {
  const into = segment(lane, new Scale(new TimeMap(), from, to, width), now, new Segments());
  return Array.from({ length: into.length }, (_, i) => [into.from[i], into.to[i], into.state[i]]);
}

describe("stretches of a lane", () => {
  it("are its states in pixels", () => {
    const lane = laneOf(["waiting", 0], ["decode", 2], ["paused", 6], ["ended", 8]);
    expect(stretches(lane, 0, 10, 100)).toEqual([[0, 20, WAITING], [20, 60, DECODE], [60, 80, PAUSED]]);
  });

  it("end at now while the lane goes on", () => {
    expect(stretches(laneOf(["decode", 2]), 0, 10, 100, 7)).toEqual([[20, 70, DECODE]]);
  });

  it("are put together where they are narrower than a pixel, and the longest state is shown", () => {
    const rows: [string, number][] = [];
    for (let i = 0; i < 10_000; i++) rows.push(["decode", i * 0.001], ["paused", i * 0.001 + 0.0002]);
    const found = stretches(laneOf(...rows, ["ended", 10]), 0, 10, 100);
    expect(found).toEqual([[0, 100, PAUSED]]);
  });

  it("never vanish and never overlap", () => {
    const trace = new Trace();
    trace.add(sample({ sessions: 20, seed: 4 }));
    for (const width of [10, 137, 1600]) {
      const scale = new Scale(new TimeMap(), trace.from, trace.to, width);
      for (const lane of trace.lanes) {
        const found = stretches(lane, trace.from, trace.to, width);
        expect(found.length).toBeGreaterThan(0);
        expect(found[0][0]).toBeLessThanOrEqual(scale.x(lane.start) + 1e-6);
        for (let i = 1; i < found.length; i++) expect(found[i][0]).toBeGreaterThanOrEqual(found[i - 1][1] - 1e-6);
      }
    }
  });
});

describe("rows", () => {
  const trace = new Trace();
  trace.add(sample({ sessions: 40, seed: 2 }));

  it("are all lanes without filters, and keep a session's requests together", () => {
    expect(rowsOf(trace, NO_FILTERS).map((row) => row.lane)).toEqual(trace.lanes);
    const two = new Trace();
    two.add([
      { kind: "lanes", request: ["a", "x", "b"], state: ["decode", "decode", "decode"], at: [1, 2, 3] },
      { kind: "session", request: "a", session: "s", at: 4 }, { kind: "session", request: "b", session: "s", at: 5 },
    ]);
    expect(rowsOf(two, NO_FILTERS).map((row) => [row.lane.id, row.place, row.of])).toEqual([["a", 0, 2], ["b", 1, 2], ["x", 0, 1]]);
  });

  it("are filtered by words, tool, state and outcome", () => {
    const [first] = trace.lanes;
    expect(rowsOf(trace, { ...NO_FILTERS, q: first.id.toUpperCase() }).map((row) => row.lane)).toEqual([first]);
    const searching = rowsOf(trace, { ...NO_FILTERS, tool: "search" });
    expect(searching.length).toBeGreaterThan(0);
    expect(searching.length).toBeLessThan(trace.lanes.length);
    expect(searching.every((row) => trace.pausesOf(row.lane.id).some((pause) => pause.tool === "search"))).toBe(true);
    const recomputed = rowsOf(trace, { ...NO_FILTERS, state: "recompute" });
    expect(recomputed.every((row) => outcomesOf(trace, row.lane).has("discard"))).toBe(true);
    expect(rowsOf(trace, { ...NO_FILTERS, outcome: "no such" })).toEqual([]);
  });

  it("are hit by the pointer, marks before what lies beneath", () => {
    const scale = new Scale(new TimeMap(), trace.from, trace.to, 1000);
    const rows = rowsOf(trace, NO_FILTERS);
    const place = rows.findIndex((row) => trace.pausesOf(row.lane.id).length > 0);
    const pause = trace.pausesOf(rows[place].lane.id)[0];
    const y = AXIS + place * 20 + 10;
    expect(hit(GUTTER + scale.x(pause.at) + 1, y, 0, 20, rows, trace, scale)?.mark).toBe(pause);
    expect(hit(GUTTER + 500, y + 40, 40, 20, rows, trace, scale)?.lane).toBe(rows[place + 4].lane);
    expect(hit(GUTTER + 500, AXIS - 1, 0, 20, rows, trace, scale)).toBeNull();
    expect(pauseDuring([pause], pause.at + pause.seconds! / 2)).toBe(pause);
    expect(pauseDuring([pause], pause.at + pause.seconds! + 1)).toBeNull();
  });
});

describe("the overview", () => {
  it("counts requests exactly: the sum is the time that they spent", () => {
    const trace = new Trace();
    trace.add(sample({ sessions: 25, seed: 6 }));
    const scale = new Scale(new TimeMap(), trace.from, trace.to, 300);
    const layers = density(trace.lanes, scale, trace.to);
    const drawn = layers.reduce((sum, layer) => sum + layer.reduce((a, b) => a + b, 0), 0) * scale.secondsPerPixel;
    const spent = trace.lanes.reduce((sum, lane) => sum + lane.end! - lane.start, 0);
    expect(drawn / spent).toBeCloseTo(1, 6);
  });
});
