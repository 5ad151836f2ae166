// Busy and idle times, the folded axis, its ticks, and the window's movements.
import { describe, expect, it } from "vitest";
import { foldsOf } from "../src/app/state";
import { Busy } from "../src/model/busy";
import { Scale, TimeMap } from "../src/model/timemap";
import { Trace } from "../src/model/trace";
import { niceStep, originOf, ticks } from "../src/views/timeline/ticks";
import { moved, zoomed } from "../src/views/timeline/zoom";
import { random } from "./random";

describe("busy times", () => {
  it("are a union, in whatever order intervals come", () => {
    const next = random(5);
    for (let round = 0; round < 50; round++) {
      const busy = new Busy();
      const seconds = new Uint8Array(100);
      for (let i = 0; i < 12; i++) {
        const from = Math.floor(next() * 90);
        const to = from + 1 + Math.floor(next() * 6);
        busy.add(from, to);
        seconds.fill(1, from, to);
      }
      const idle = busy.idle(0);
      const gaps: [number, number][] = [];
      for (let i = seconds.indexOf(1); i <= seconds.lastIndexOf(1); i++) {
        if (seconds[i]) continue;
        if (gaps.length && gaps[gaps.length - 1][1] === i) gaps[gaps.length - 1][1] = i + 1;
        else gaps.push([i, i + 1]);
      }
      expect(idle.map((gap) => [gap.from, gap.to])).toEqual(gaps);
    }
  });
});

describe("the folded axis", () => {
  const map = new TimeMap([{ from: 10, to: 110 }, { from: 200, to: 1200 }], 2);

  it("shortens each gap to a stub and nothing else", () => {
    expect([5, 10, 60, 110, 150, 200, 1200, 1300].map((time) => map.draw(time))).toEqual([5, 10, 11, 12, 52, 102, 104, 204]);
  });

  it("is undone by its inverse", () => {
    for (let time = 0; time < 1400; time += 7.3) expect(map.time(map.draw(time))).toBeCloseTo(time, 6);
  });

  it("fills the pixels that it has", () => {
    const scale = new Scale(map, 0, 1300, 408);
    expect([scale.x(0), scale.x(1300)]).toEqual([0, 408]);
    expect(scale.x(110)).toBeCloseTo(24, 9);
    expect(scale.time(scale.x(1234.5))).toBeCloseTo(1234.5, 6);
  });
});

describe("what is folded", () => {
  const busy = (...rows: [state: string, at: number][]): Trace => {
    const trace = new Trace();
    trace.add([{ kind: "lanes", request: rows.map(() => "a"), state: rows.map((row) => row[0]), at: rows.map((row) => row[1]) }]);
    return trace;
  };
  const folds = (trace: Trace, now?: number) => foldsOf(trace, now).folds.map((fold) => [fold.from, fold.to]);

  it("is a long pause of all, and not what is queued or computed", () => {
    expect(folds(busy(["decode", 0], ["paused", 10], ["decode", 300], ["ended", 310]))).toEqual([[10, 300]]);
    expect(folds(busy(["decode", 0], ["waiting", 10], ["decode", 300], ["ended", 310]))).toEqual([]);
    expect(folds(busy(["decode", 0], ["paused", 10], ["decode", 14], ["ended", 20]))).toEqual([]);
  });

  it("is the end too, while a live recording waits for a tool", () => {
    expect(folds(busy(["decode", 0], ["paused", 10]), 900)).toEqual([[10, 900]]);
    expect(folds(busy(["waiting", 0], ["decode", 10]), 900)).toEqual([]);
  });
});

describe("ticks", () => {
  it("count in steps that people count in", () => {
    expect([0.0013, 0.04, 0.7, 1.2, 7, 31, 500, 4000].map(niceStep)).toEqual([0.002, 0.05, 1, 2, 10, 60, 600, 7200]);
  });

  it("keep apart, name milliseconds where they must, and skip folds", () => {
    const scale = new Scale(new TimeMap([{ from: 10, to: 110 }], 2), 0, 130, 800);
    const found = ticks(scale, 0);
    for (let i = 1; i < found.length; i++) expect(found[i].x - found[i - 1].x).toBeGreaterThan(60);
    expect(found.every((tick) => tick.clock === "")).toBe(true);
    expect(found.some((tick) => tick.since === "60 s")).toBe(false);
    const near = ticks(new Scale(new TimeMap(), 1.7e9 + 5, 1.7e9 + 5.004, 800), 1.7e9);
    expect(near.map((tick) => tick.since)).toContain("+5.0010 s".replace("0 s", " s"));
    expect(near[0].clock).toMatch(/^\d\d:\d\d:\d\d\.\d{4}$|^\d\d:\d\d:\d\d\.\d{3}$/);
  });
});

describe("clocks at ticks", () => {
  it("are true to the tick, also where the recording began within a second", () => {
    const began = 1.7e9 + 0.67;
    expect([originOf(began), originOf(0.67)]).toEqual([1.7e9, 0]);
    for (const length of [8, 0.8, 0.08]) {
      const scale = new Scale(new TimeMap(), began, began + length, 800);
      const found = ticks(scale, originOf(began));
      expect(found.length).toBeGreaterThan(3);
      for (const tick of found) {
        const told = Number(tick.clock.split(":")[2]);
        expect(Math.abs(told - (scale.time(tick.x) % 60)), tick.clock).toBeLessThan(1e-5);
      }
    }
  });
});

describe("the window", () => {
  const whole = { t0: 0, t1: 1000 };
  const map = new TimeMap();

  it("is scaled around the pointer", () => {
    expect(zoomed({ t0: 0, t1: 100 }, map, 25, 0.5, whole)).toEqual({ t0: 12.5, t1: 62.5 });
  });

  it("is never shorter than a millisecond nor much longer than the recording", () => {
    const near = zoomed({ t0: 5, t1: 5.0012 }, map, 5.0006, 0.1, whole);
    expect(near.t1 - near.t0).toBeCloseTo(0.001, 6);
    const far = zoomed({ t0: 0, t1: 1000 }, map, 500, 10, whole);
    expect(far.t1 - far.t0).toBeCloseTo(1200, 6);
  });

  it("does not lose the recording out of sight", () => {
    let window = { t0: 0, t1: 100 };
    for (let i = 0; i < 100; i++) window = moved(window, map, 0.5, whole);
    expect(window.t0).toBeLessThan(1000);
    for (let i = 0; i < 200; i++) window = moved(window, map, -0.5, whole);
    expect(window.t1).toBeGreaterThan(0);
  });
});
