// What the timeline draws and finds: stretches, rows, densities, marks under the pointer.
import { describe, expect, it } from "vitest";
import { DECODE, Lane, PAUSED, WAITING } from "../src/model/lane";
import type { Entry } from "../src/model/records";
import { Scale, TimeMap } from "../src/model/timemap";
import { Trace } from "../src/model/trace";
import { labelOf as labelInLists } from "../src/views/session/called";
import { density } from "../src/views/timeline/density";
import { AXIS, GUTTER } from "../src/views/timeline/frame";
import { hit, pauseDuring } from "../src/views/timeline/hit";
import { lanesOf, outcomesOf } from "../src/views/timeline/rows";
import { factsOf, idBegins, labelOf, regretOf, waitedOf } from "../src/views/timeline/rows/facts";
import { NO_MORE, choicesOf } from "../src/views/timeline/rows/filter";
import { type LaneRow, Packing, type Space, layoutOf, packed, within } from "../src/views/timeline/rows/layout";
import { Segments, segment } from "../src/views/timeline/segments";
import { turnOf } from "../src/views/timeline/wheel";
import { random } from "./random";
import { sample } from "./sample";
import { lanes, span, traceOf as worldOf } from "./world";

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

/** So many pixels from top to bottom, and room enough to the side. */
const space = (height: number, more: Partial<Space> = {}): Space => ({ height, width: 1000, here: 0, ...more });

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

const SESSIONS: Entry[] = [
  { kind: "lanes", request: ["a", "x", "b"], state: ["decode", "decode", "decode"], at: [1, 2, 3] },
  { kind: "session", request: "a", session: "s", at: 4 }, { kind: "session", request: "b", session: "s", at: 5 },
];

function traceOf(...entries: Entry[]): Trace {
  const trace = new Trace();
  trace.add(entries);
  return trace;
}

const idsOf = (rows: readonly LaneRow[]): string[][] => rows.map((row) => row.lanes.map((lane) => lane.id));

describe("rows", () => {
  const trace = traceOf(...sample({ sessions: 40, seed: 2 }));
  const shown = (changed: Partial<typeof NO_FILTERS>): Lane[] => lanesOf(trace, trace.to, { filters: { ...NO_FILTERS, ...changed } });

  it("are all lanes without filters, and keep a session's requests together", () => {
    expect(shown({})).toEqual(trace.lanes);
    const two = traceOf(...SESSIONS);
    const { rows } = layoutOf(lanesOf(two, two.to, { filters: NO_FILTERS }), "each", space(0), false);
    expect(rows.map((row) => [row.lanes[0].id, row.place, row.of])).toEqual([["a", 0, 2], ["b", 1, 2], ["x", 0, 1]]);
  });

  it("are filtered by words, tool, state and outcome", () => {
    const [first] = trace.lanes;
    expect(shown({ q: first.id.toUpperCase() })).toEqual([first]);
    const searching = shown({ tool: "search" });
    expect(searching.length).toBeGreaterThan(0);
    expect(searching.length).toBeLessThan(trace.lanes.length);
    expect(searching.every((lane) => trace.pausesOf(lane.id).some((pause) => pause.tool === "search"))).toBe(true);
    const recomputed = shown({ state: "recompute" });
    expect(recomputed.every((lane) => outcomesOf(trace, lane).has("discard"))).toBe(true);
    expect(shown({ outcome: "no such" })).toEqual([]);
  });

  it("are found by how an id begins, not by any digits in it", () => {
    for (const [id, word, found] of [
      ["chatcmpl-5f2d17aa", "chatcmpl-5f", true], ["chatcmpl-5f2d17aa", "5f2d", true], ["chatcmpl-5f2d17aa", "17", false],
      ["chatcmpl-5f2d17aa", "17aa", false], ["17aa", "17", true], ["req-1700", "17", false],
    ] as const) expect([id, word, idBegins(id, word)]).toEqual([id, word, found]);
  });

  it("are found by what was asked", () => {
    expect(shown({ q: "tallest tree" })).toEqual(trace.lanes);
    expect(shown({ q: "tallest ship" })).toEqual([]);
  });

  it("are called by the question, else by the tools, else by their id", () => {
    expect(labelOf(trace, trace.lanes[0])).toBe("What is the tallest tree?");
    const silent = traceOf(...sample({ sessions: 40, seed: 2, content: false }));
    const paused = silent.lanes.find((lane) => silent.pausesOf(lane.id).length > 1)!;
    expect(labelOf(silent, paused)).toBe([...new Set(silent.pausesOf(paused.id).map((pause) => pause.tool))].join(", "));
    const bare = silent.lanes.find((lane) => !silent.pausesOf(lane.id).length)!;
    expect(labelOf(silent, bare)).toBe(bare.id);
  });

  it("are called by the run's question in lists too, also where they decoded its later turns", () => {
    const chat = (id: string, request: string, start: number, said: object) => span(`chat ${id}`, id, start, start + 1, {
      attributes: { "caesura.request.id": request, "gen_ai.input.messages": JSON.stringify([said]) },
    });
    const served = worldOf([
      lanes(["a", "decode", 0], ["a", "ended", 1], ["b", "decode", 2], ["b", "ended", 3]), span("invoke_agent x", "run", 0, 3),
      chat("c", "a", 0, { role: "user", parts: [{ type: "text", content: "Why?" }] }),
      chat("d", "b", 2, { role: "tool", parts: [{ type: "tool_call_response", id: "1", response: "so" }] }),
    ]);
    for (const lane of served.lanes) {
      expect(labelOf(served, lane)).toBe("Why?");
      expect(labelInLists(served, lane)).toEqual({ text: "Why?", bare: false });
    }
  });

  it("are told anew when more is known of them", () => {
    const growing = traceOf(...SESSIONS);
    const [lane] = growing.lanes;
    expect(factsOf(growing, lane)).toMatchObject({ question: "", finish: "", errors: [] });
    const attributes = { "gen_ai.operation.name": "chat", "caesura.request.id": "a", "gen_ai.request.model": "tiny", "error.type": "timeout",
      "gen_ai.input.messages": JSON.stringify([{ role: "user", parts: [{ type: "text", content: "Why?" }] }]) };
    growing.add([{ kind: "span", trace: "t", span: "c", parent: "r", name: "chat tiny", start: 1, end: 3, status: "error", attributes }]);
    expect(factsOf(growing, lane)).toMatchObject({ question: "Why?", model: "tiny", errors: ["timeout"] });
    expect(choicesOf(growing)).toMatchObject({ models: ["tiny"], finishes: [], errors: ["timeout"] });
    for (const [filter, count] of [[{ model: "tiny" }, 1], [{ error: "timeout" }, 1], [{ finish: "stop" }, 0]] as const) {
      expect(lanesOf(growing, 9, { filters: NO_FILTERS, more: { ...NO_MORE, ...filter } })).toHaveLength(count);
    }
  });

  it("are kept by least durations, waits and sizes", () => {
    const sized = traceOf({
      kind: "lanes", request: ["short", "long", "short", "long", "long"], state: ["decode", "waiting", "ended", "decode", "ended"],
      at: [0, 0, 1, 8, 9], tokens: [500, 10, 500, 20, 30],
    });
    const kept = (more: Partial<typeof NO_MORE>): string[] => lanesOf(sized, 9, { filters: NO_FILTERS, more: { ...NO_MORE, ...more } }).map((lane) => lane.id);
    expect(kept({ seconds: 2 })).toEqual(["long"]);
    expect(kept({ waited: 7.5 })).toEqual(["long"]);
    expect(kept({ tokens: 100 })).toEqual(["short"]);
    expect(kept({ seconds: 2, tokens: 100 })).toEqual([]);
  });

  it("come in the order that is asked for", () => {
    const lanes = lanesOf(trace, trace.to, { filters: NO_FILTERS, order: "duration" });
    const lengths = lanes.map((lane) => lane.end! - lane.start);
    expect(lengths).toEqual([...lengths].sort((a, b) => b - a));
    for (const [order, size] of [["waiting", (lane: Lane) => waitedOf(lane, trace.to)], ["regret", (lane: Lane) => regretOf(trace, lane)]] as const) {
      const sizes = lanesOf(trace, trace.to, { filters: NO_FILTERS, order }).map(size);
      expect(sizes).toEqual([...sizes].sort((a, b) => b - a));
      expect(sizes[0]).toBeGreaterThan(0);
    }
  });
});

describe("packed rows", () => {
  it("of a live recording go on: only what is new is placed, and the rows are those of all at once", () => {
    const next = random(7);
    const packing = new Packing();
    const all: Lane[] = [];
    for (let turn = 0; turn < 60; turn++) {
      const now = 10 * turn;
      for (const lane of all) if (lane.end === null && next() < 0.5) lane.add({ state: "ended", at: now, blocks: 0, host: 0, tokens: 0 });
      for (let k = 0; k < 20; k++) {
        const lane = new Lane(`r${all.length}`, all.length);
        lane.add({ state: "decode", at: now + next(), blocks: 1, host: 0, tokens: 1 });
        all.push(lane);
      }
      const seen = [...all];
      const before = packing.placed;
      const rows = packing.of(seen);
      expect(idsOf(rows)).toEqual(idsOf(packed(seen)));
      // Those of one turn arrive in any order, and the last turn's are told before.
      expect(packing.placed - before).toBe(20);
    }
    packing.of(all.slice(5)); // a filter was set
    expect(packing.placed).toBe(1200 + 1195);
  });

  const spans = (...rows: [id: string, from: number, to: number | null][]): Lane[] => {
    const trace = new Trace();
    for (const [id, from, to] of rows) {
      trace.add([{ kind: "lanes", request: [id], state: ["decode"], at: [from] }]);
      if (to !== null) trace.add([{ kind: "lanes", request: [id], state: ["ended"], at: [to] }]);
    }
    return trace.lanes;
  };

  it("hold requests one after another, each in the first row that is free", () => {
    expect(idsOf(packed(spans(["a", 0, 4], ["b", 1, 2], ["c", 2, 3], ["d", 3.5, 9], ["e", 4, 5])))).toEqual([["a", "e"], ["b", "c", "d"]]);
  });

  it("keep a row for what has not ended, and stay as they are when it does", () => {
    const before = idsOf(packed(spans(["a", 0, null], ["b", 1, 2], ["c", 3, null])));
    expect(before).toEqual([["a"], ["b", "c"]]);
    expect(idsOf(packed(spans(["a", 0, 5], ["b", 1, 2], ["c", 3, 6])))).toEqual(before);
  });

  it("are as few as there were requests at once, and no two overlap", () => {
    const { lanes } = traceOf(...sample({ sessions: 300, seed: 8 }));
    const rows = packed(lanes);
    const changes = lanes.flatMap((lane) => [[lane.start, 1], [lane.end!, -1]]).sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    let now = 0;
    const most = changes.reduce((sum, [, by]) => Math.max(sum, (now += by)), 0);
    expect(rows).toHaveLength(most);
    expect(rows.reduce((sum, row) => sum + row.lanes.length, 0)).toBe(lanes.length);
    for (const row of rows) row.lanes.slice(1).forEach((lane, i) => expect(lane.start).toBeGreaterThanOrEqual(row.lanes[i].end!));
  });

  it("are found within a stretch of time", () => {
    const [row] = packed(spans(["a", 0, 4], ["b", 5, 6], ["c", 7, 8], ["d", 9, null]));
    const seen = (from: number, to: number): string[] => row.lanes.slice(...within(row, from, to)).map((lane) => lane.id);
    expect(seen(5.5, 7.5)).toEqual(["b", "c"]);
    expect(seen(20, 30)).toEqual(["d"]);
  });

  it("give way to sums where requests in sight would have less than some pixels each", () => {
    const many = spans(...Array.from({ length: 300 }, (_, i): [string, number, number] => [`r${i}`, i, i + 10]));
    expect(layoutOf(many, "fit", space(600, { here: 300, width: 1000 }), false).kind).toBe("packed");
    expect(layoutOf(many, "fit", space(600, { here: 300, width: 300 }), false).kind).toBe("summed");
    expect(layoutOf(many, "fit", space(600, { here: 100, width: 300 }), false).kind, "zoomed in").toBe("packed");
    expect(layoutOf(many, "packed", space(600, { here: 300, width: 300 }), false).kind, "asked for").toBe("packed");
  });

  it("are made where there are more requests than fit, and summed up where a row would be lower than a pixel", () => {
    const many = spans(...Array.from({ length: 300 }, (_, i): [string, number, number] => [`r${i}`, i, i + 10]));
    expect(layoutOf(many.slice(0, 20), "fit", space(600), false)).toMatchObject({ kind: "each", rowHeight: 22 });
    const fit = layoutOf(many, "fit", space(600), false);
    expect([fit.kind, fit.rows.length, fit.rowHeight]).toEqual(["packed", 10, 22]);
    expect(layoutOf(many, "fit", space(600), true).kind).toBe("each");
    const once = spans(...Array.from({ length: 300 }, (_, i): [string, number, null] => [`r${i}`, i, null]));
    expect(layoutOf(once, "fit", space(250), false).kind).toBe("summed");
    expect(layoutOf(once, "packed", space(250), false)).toMatchObject({ kind: "packed", rowHeight: 9 });
  });
});

describe("the wheel", () => {
  const turned = (event: Partial<WheelEvent>) =>
    turnOf({ deltaX: 0, deltaY: 0, deltaMode: 0, ctrlKey: false, metaKey: false, shiftKey: false, altKey: false, ...event });

  it("scrolls; with Ctrl it zooms, with Shift or turned aside it moves", () => {
    expect(turned({ deltaY: 100 })).toEqual({ kind: "scroll" });
    expect(turned({ deltaY: 100, shiftKey: true })).toEqual({ kind: "move", by: 100 });
    expect(turned({ deltaX: -40, deltaY: 3 })).toEqual({ kind: "move", by: -40 });
    const zoom = turned({ deltaY: -100, ctrlKey: true });
    expect(zoom.kind === "zoom" && zoom.factor).toBeLessThan(1);
    expect(turned({ deltaY: 3, deltaMode: 1, shiftKey: true })).toEqual({ kind: "move", by: 48 });
  });
});

describe("the pointer", () => {
  const trace = traceOf(...sample({ sessions: 40, seed: 2 }));

  it("hits marks before what lies beneath", () => {
    const scale = new Scale(new TimeMap(), trace.from, trace.to, 1000);
    const { rows } = layoutOf(trace.lanes, "each", space(0), false);
    const place = rows.findIndex((row) => trace.pausesOf(row.lanes[0].id).length > 0);
    const pause = trace.pausesOf(rows[place].lanes[0].id)[0];
    const y = AXIS + place * 20 + 10;
    expect(hit(GUTTER + scale.x(pause.at) + 1, y, 0, 20, rows, trace, scale)?.mark).toBe(pause);
    expect(hit(GUTTER + 500, y + 40, 40, 20, rows, trace, scale)?.lane).toBe(rows[place + 4].lanes[0]);
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
