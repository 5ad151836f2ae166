// What the memory view draws and says, against the steps that it is made of.
import { describe, expect, test } from "vitest";
import type { StepColumn, StepsEntry } from "../src/model/records";
import { Steps } from "../src/model/steps";
import { TimeMap } from "../src/model/timemap";
import { chartsOf, closeTo, layersOf, mostlyFree } from "../src/views/memory/charts";
import { type Part, levelsOf, seen, workOf } from "../src/views/memory/columns";
import { holdersOf } from "../src/views/memory/holders";
import { valueAt } from "../src/views/memory/rests";
import { lanes, traceOf } from "./world";

const LEVELS: StepColumn[] = [
  "running_blocks", "paused_blocks", "cached_blocks", "free_blocks", "host_blocks", "running", "paused", "waiting",
];
const WORK: StepColumn[] = ["decode_tokens", "prefill_tokens", "recompute_tokens", "saved_blocks", "budget_blocks"];

const part = (from: number, to: number, buckets: number, map = new TimeMap()): Part => ({ map, from, to, buckets });

function stepsOf(entry: Omit<StepsEntry, "kind">): Steps {
  const steps = new Steps();
  steps.add({ kind: "steps", ...entry } as StepsEntry);
  return steps;
}

const FEW = stepsOf({
  at: [0, 1, 2, 10], seconds: [1, 1, 0.5, 1], running: [1, 2, 2, 1], running_blocks: [10, 20, 30, 5], paused_blocks: [0, 5, 5, 0],
  cached_blocks: [20, 15, 5, 40], free_blocks: [90, 75, 65, 95], decode_tokens: [1, 2, 3, 4], prefill_tokens: [100, 0, 0, 7],
  budget_blocks: [8, 8, 8, 8], saved_blocks: [1, 0, 2, 0],
});

describe("levels", () => {
  test("are those of the steps in sight, and hold to the end of the window", () => {
    const levels = levelsOf(FEW, null, LEVELS, part(1.5, 12, 100));
    expect(levels.x).toEqual([1, 2, 10, 12]);
    expect(levels.of.running_blocks).toEqual([20, 30, 5, 5]);
  });
  test("lie where idle time is folded", () => {
    const levels = levelsOf(FEW, null, LEVELS, part(0, 10, 100, new TimeMap([{ from: 3, to: 9 }], 1)));
    expect(levels.x).toEqual([0, 1, 2, 5]);
  });
  test("keep every peak of a hundred thousand steps", () => {
    const count = 100_000;
    const flat = new Array<number>(count).fill(100);
    const blocks = [...flat];
    blocks[54_321] = 900;
    const many = stepsOf({ at: flat.map((_, row) => row * 0.02), seconds: flat.map(() => 0.02), running_blocks: blocks, free_blocks: flat, waiting: flat });
    const levels = levelsOf(many, null, LEVELS, part(0, 2000, 600));
    expect(Math.max(...(levels.of.running_blocks ?? []))).toBe(900);
    expect(levels.x.length).toBeLessThan(600 * 8);
  });
  test("of no steps are none", () => {
    expect(levelsOf(new Steps(), null, LEVELS, part(0, 1, 10)).x).toEqual([]);
    expect(workOf(new Steps(), WORK, part(0, 1, 10)).x).toEqual([]);
  });
});

describe("work", () => {
  test("ends with its step where the next does not follow at once; the budget stays", () => {
    const work = workOf(FEW, WORK, part(0, 12, 1000));
    expect(work.x).toEqual([0, 1, 2, 2.5, 10, 11]);
    expect(work.of.decode_tokens).toEqual([1, 2, 3, 0, 4, 0]);
    expect(work.of.budget_blocks).toEqual([8, 8, 8, 8, 8, 8]);
  });
  test("is wide enough to be seen, and never reaches into the next step", () => {
    const short = stepsOf({ at: [0, 50, 51], seconds: [0.01, 0.01, 0.01], decode_tokens: [5, 6, 7] });
    const work = workOf(short, WORK, part(0, 100, 25));
    expect(work.x).toEqual([0, 2, 50, 51, 53]);
  });
});

test("rows around the window belong to it", () => {
  expect(seen(FEW, 1.5, 2.5)).toEqual([1, 4]);
  expect(seen(FEW, 20, 30)).toEqual([3, 4]);
});

describe("a rest", () => {
  // The only request pauses at 1 with 8 of 10 blocks, gives them up at 3, and is back in a step at 5.
  const trace = traceOf([
    lanes(["r", "decode", 0, 6], ["r", "paused", 1, 8], ["r", "dropped", 3, 2], ["r", "waiting", 4.9, 2], ["r", "decode", 5, 9], ["r", "ended", 6]),
    { kind: "steps", at: [0, 5], seconds: [1, 1], running: [1, 1], paused: [0, 0], waiting: [0, 0], running_blocks: [7, 9],
      paused_blocks: [0, 0], free_blocks: [3, 1], cached_blocks: [1, 0], host_blocks: [4, 4], decode_tokens: [5, 5], budget_blocks: [6, 6] },
  ]);
  const holders = holdersOf(trace);
  const levels = levelsOf(trace.steps, holders, LEVELS, part(0, 8, 100));
  test("is drawn by the lanes, since no step tells of it", () => {
    expect(levels.x).toEqual([0, 1, 3, 4.9, 5, 6, 8]);
    expect(levels.of.running_blocks).toEqual([7, 0, 0, 2, 9, 0, 0]);
    expect(levels.of.paused_blocks).toEqual([0, 8, 2, 0, 0, 0, 0]);
    expect(levels.of.free_blocks).toEqual([3, 2, 8, 8, 1, 10, 10]);
    expect(levels.of.paused).toEqual([0, 1, 1, 0, 0, 0, 0]);
    expect(levels.of.waiting).toEqual([0, 0, 0, 1, 0, 0, 0]);
    expect(levels.of.running).toEqual([1, 0, 0, 0, 1, 0, 0]);
    expect(levels.of.cached_blocks).toEqual([1, 1, 6, 6, 0, 0, 0]);
    expect(levels.of.host_blocks).toEqual([4, 4, 4, 4, 4, 4, 4]);
  });
  test("is told as it is drawn", () => {
    const at = (time: number, row: number) => ["running_blocks", "paused_blocks", "decode_tokens", "budget_blocks"].map((column) =>
      valueAt(trace.steps, holders, column as "running", row, time));
    expect(at(0.5, 0)).toEqual([7, 0, 5, 6]);
    expect(at(2, 0)).toEqual([0, 8, 0, 6]);
    expect(at(3.5, 0)).toEqual([0, 2, 0, 6]);
    expect(at(7, 1)).toEqual([0, 0, 0, 6]);
  });
  test("is none while somebody is active: a load takes no step", () => {
    const loading = traceOf([
      lanes(["r", "loading", 0.5, 6], ["r", "decode", 5, 6]),
      { kind: "steps", at: [0, 5], seconds: [1, 1], running_blocks: [6, 6], paused_blocks: [0, 0], free_blocks: [4, 4] },
    ]);
    expect(levelsOf(loading.steps, holdersOf(loading), LEVELS, part(0, 5, 100)).x).toEqual([0, 5]);
  });
  test("stays as the last step said where lanes know no blocks", () => {
    expect(holdersOf(traceOf([lanes(["r", "decode", 0], ["r", "dropped", 1])]))).toBeNull();
  });
});

describe("the stack", () => {
  const [device] = chartsOf(FEW);
  test("adds up to all blocks at every step", () => {
    const layers = layersOf(device, levelsOf(FEW, null, LEVELS, part(0, 10, 100)));
    expect(layers.map((layer) => layer.name)).toEqual(["free", "cached", "paused", "running"]);
    expect(layers[0].values).toEqual([100, 100, 100, 100]);
    expect(layers[1].values).toEqual([30, 40, 40, 45]);
    expect(layers[3].values).toEqual([10, 20, 30, 5]);
  });
  test("says of free blocks only what is not cached", () => {
    expect(device.layers.map((layer) => valueAt(FEW, null, layer.column, 1, 1.2))).toEqual([20, 5, 15, 60]);
  });
  test("leaves out the host and the link where nothing was swapped", () => {
    const ids = (more: Partial<StepsEntry>) => chartsOf(stepsOf({ at: [0, 1], running: [1, 1], host_blocks: [0, 0], saved_blocks: [0, 0], ...more })).map((chart) => chart.id);
    expect(ids({})).toEqual(["requests"]);
    expect(ids({ saved_blocks: [0, 1] })).toEqual(["host", "link", "requests"]);
  });
  test("knows where free blocks leave nothing else to be seen", () => {
    expect(mostlyFree(FEW)).toBe(false);
    expect(mostlyFree(stepsOf({ at: [0], running_blocks: [10], free_blocks: [90], cached_blocks: [9] }))).toBe(true);
    expect(mostlyFree(stepsOf({ at: [0], running_blocks: [10], free_blocks: [90], cached_blocks: [10] }))).toBe(false);
  });
  test("does without columns that a recording lacks", () => {
    const old = stepsOf({ at: [0], running_blocks: [10], paused_blocks: [5], free_blocks: [85], budget_blocks: [9] });
    const charts = chartsOf(old);
    expect(charts.map((chart) => chart.id)).toEqual(["device"]);
    expect(layersOf(charts[0], levelsOf(old, null, LEVELS, part(0, 0, 10)))[0]).toMatchObject({ name: "free", values: [100] });
  });
});

describe("a step's time and tokens", () => {
  const steps = stepsOf({ at: [0, 1], seconds: [0.25, 0.02], decode_tokens: [4, 4], prefill_tokens: [12, 0], budget_tokens: [16, 16] });
  test("are drawn in milliseconds, with the budget that holds between steps", () => {
    const [time, tokens] = chartsOf(steps);
    expect([time.id, tokens.id]).toEqual(["seconds", "tokens"]);
    const columns = workOf(steps, ["seconds", "budget_tokens"], part(0, 2, 1000));
    expect(layersOf(time, columns)[0].values).toEqual([250, 0, 20, 0]);
    expect(columns.of.budget_tokens).toEqual([16, 16, 16, 16]);
    expect(valueAt(steps, null, "seconds", 0, 0.1)).toBe(0.25);
  });
  test("are not known of a recording whose rows are no single steps", () => {
    expect(chartsOf(steps, true).map((chart) => chart.id)).toEqual(["tokens"]);
  });
  test("have no budget in a recording of before", () => {
    const old = stepsOf({ at: [0], seconds: [1], decode_tokens: [1], budget_tokens: [] });
    expect(chartsOf(old)[1].layers.map((layer) => layer.name)).not.toContain("budget");
  });
});

test("a fast link's budget does not squeeze what was copied", () => {
  const drawn = { name: "", colour: "" };
  const [copied, budget] = closeTo([
    { ...drawn, kind: "area", values: [0, 4, 2] },
    { ...drawn, kind: "line", values: [900, 3, null] },
  ]);
  expect(copied.values).toEqual([0, 4, 2]);
  expect(budget.values).toEqual([12, 3, null]);
});
