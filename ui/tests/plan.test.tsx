// @vitest-environment happy-dom
// A plan and its run: blocks, stages, what was planned anew, and how the chart is walked through by keys.
import { render } from "preact";
import { act } from "preact/test-utils";
import { describe, expect, test } from "vitest";
import { parse, route } from "../src/app/router";
import { current, version } from "../src/app/state";
import type { Entry, PlanEntry, ReplicaEntry } from "../src/model/records";
import { plannedBlocks, realBlocks } from "../src/views/plan/blocks";
import { changesOf, doneLines, doneOf, stageRows } from "../src/views/plan/stages";
import { PlanView } from "../src/views/plan/view";
import { VIEWS, viewOf } from "../src/views/registry";
import { loaded, page } from "./mounted";
import { RECORDING, lanes, traceOf } from "./world";

const BEGAN = 1000;

const PLAN: PlanEntry = {
  kind: "plan", at: BEGAN, application: "ensemble", strategy: "best", devices: 2, requests: 20, makespan: 30, low: 28, high: 33,
  stages: [
    { seconds: 20, finishes: ["small"], placements: [{ model: "small" }, { model: "large" }] },
    { seconds: 10, finishes: ["large"], placements: [{ model: "large", replicas: 2 }] },
  ],
  blocks: [
    { device: 0, model: "small", state: "loading", since: 0, until: 4 },
    { device: 0, model: "small", state: "serving", since: 4, until: 20 },
    { device: 0, model: "large", state: "serving", since: 20, until: 30, replicas: 2 },
    { device: 1, model: "large", state: "loading", since: 0, until: 8 },
    { device: 1, model: "large", state: "serving", since: 8, until: 30 },
  ],
  next_best: { strategy: "max", makespan: 41, low: 40, high: 42, reason: "max takes 11.0 s longer (36.7%): it loads models" },
};

const replica = (name: string, device: number, state: string, at: number, reason = ""): ReplicaEntry => ({
  kind: "replica", at: BEGAN + at, replica: name, model: name.split("-")[0], devices: [device], state, reason,
});

const stage = (at: number, number: number, ...models: string[]): Entry => ({
  kind: "stage", at: BEGAN + at, stage: number, placements: models.map((model) => ({ model })),
});

const progress = (at: number, small: number, large: number, state = "running", failed = 0): Entry => ({
  kind: "progress", at: BEGAN + at, state, model: ["small", "large"], requests: [10, 10], done: [small, large], failed: [0, failed],
});

const RUN: Entry[] = [
  PLAN,
  progress(0, 0, 0),
  stage(0, 0, "small", "large"),
  replica("small-0", 0, "loading", 0), replica("large-0", 1, "loading", 0),
  replica("small-0", 0, "serving", 5), replica("large-0", 1, "serving", 9),
  progress(15, 6, 1),
  progress(24, 10, 3),
  stage(24, 1, "large"),
  replica("small-0", 0, "draining", 24), replica("small-0", 0, "evicting", 25), replica("small-0", 0, "gone", 26),
  replica("large-1", 0, "loading", 26), replica("large-1", 0, "serving", 30),
  replica("large-0", 1, "lost", 32, "its engine has ended"), replica("large-0", 1, "gone", 33),
  progress(36, 10, 10, "finished", 1),
];

const short = (blocks: ReturnType<typeof realBlocks>) =>
  blocks.map((block) => [block.device, block.model, block.what, block.since, block.until]);

describe("blocks", () => {
  test("a run's engines load, serve, drain, leave and get lost", () => {
    const blocks = realBlocks(traceOf(RUN).plans, 36);
    expect(short(blocks)).toEqual([
      [0, "small", "loading", 0, 5], [0, "small", "serving", 5, 24], [0, "small", "draining", 24, 25], [0, "small", "evicting", 25, 26],
      [0, "large", "loading", 26, 30], [0, "large", "serving", 30, 36],
      [1, "large", "loading", 0, 9], [1, "large", "serving", 9, 32],
    ]);
    expect(blocks.at(-1)!.lost).toBe("its engine has ended");
    expect(blocks.filter((block) => block.lost !== null)).toHaveLength(1);
  });

  test("what goes on reaches to this moment", () => {
    const blocks = realBlocks(traceOf(RUN.slice(0, 8)).plans, 15);
    expect(short(blocks).filter(([, , what]) => what === "serving")).toEqual([[0, "small", "serving", 5, 15], [1, "large", "serving", 9, 15]]);
    expect(blocks.filter((block) => block.open)).toHaveLength(2);
  });

  test("each plan holds until the run changes to the next", () => {
    const second: PlanEntry = { ...PLAN, at: BEGAN + 12, why: "device 0 went away", blocks: [{ device: 1, model: "small", since: 0, until: 9 }] };
    const blocks = plannedBlocks(traceOf([PLAN, second]).plans);
    expect(short(blocks)).toEqual([
      [0, "small", "loading", 0, 4], [0, "small", "serving", 4, 12],
      [1, "large", "loading", 0, 8], [1, "large", "serving", 8, 12], [1, "small", "serving", 12, 21],
    ]);
  });

  test("models that share a device have rows of their own", () => {
    const shared = { ...PLAN, blocks: [{ device: 0, model: "a", until: 9 }, { device: 0, model: "b", since: 2, until: 7 }, { device: 1, model: "c", until: 3 }] };
    expect(plannedBlocks(traceOf([shared]).plans).map((block) => [block.model, block.row, block.rows])).toEqual([["a", 0, 2], ["b", 1, 2], ["c", 0, 1]]);
  });
});

describe("stages", () => {
  test("each stage has its planned and its real time", () => {
    expect(stageRows(traceOf(RUN).plans, 36).map((row) => [row.planned, row.real, row.state])).toEqual([
      [{ since: 0, until: 20 }, { since: 0, until: 24 }, "over"],
      [{ since: 20, until: 30 }, { since: 24, until: 36 }, "over"],
    ]);
  });

  test("what is placed anew within a stage belongs to it, and others are to come", () => {
    const rows = stageRows(traceOf([PLAN, progress(0, 0, 0), stage(0, 0, "small"), stage(3, 0, "large")]).plans, 7);
    expect(rows.map((row) => [row.real, row.state])).toEqual([[{ since: 0, until: 7 }, "now"], [null, "to come"]]);
  });

  test("a stage that a run leaves out is told, and so are those of a plan that was replaced", () => {
    const rows = stageRows(traceOf([PLAN, stage(0, 1, "large"), { ...PLAN, at: BEGAN + 5, why: "x" }, progress(9, 10, 10, "finished")]).plans, 9);
    expect(rows.map((row) => row.state)).toEqual(["replaced", "over", "passed over", "passed over"]);
  });

  test("what was planned anew says why, and how the expected end moved", () => {
    const second: PlanEntry = { ...PLAN, at: BEGAN + 12, strategy: "list", makespan: 25, why: "large finished before small" };
    expect(changesOf(traceOf([PLAN, second]).plans)).toEqual([{ at: 12, why: "large finished before small", strategy: "list", before: 30, after: 37 }]);
  });

  test("done requests are counted by model and over all", () => {
    const { plans } = traceOf(RUN);
    expect(doneOf(plans)).toEqual({ done: 20, failed: 1, requests: 20 });
    const [all, small, large] = doneLines(plans);
    expect(all.points.map((point) => [point.at, point.done])).toEqual([[0, 0], [15, 7], [24, 13], [36, 20]]);
    expect(small.points.at(-1)).toEqual({ at: 36, done: 10, requests: 10 });
    expect(large.name).toBe("large");
  });

  test("a long run's lines are thinned out, but keep their last point", () => {
    const many = Array.from({ length: 1001 }, (_, place) => progress(place, 0, place / 100));
    const [all] = doneLines(traceOf([PLAN, ...many]).plans);
    expect(all.points.length).toBeLessThan(70);
    expect(all.points.at(-1)!.at).toBe(1000);
  });
});

async function shown(entries: Entry[], hash = "#/plan"): Promise<void> {
  current.value = loaded(RECORDING, entries);
  route.value = parse(hash);
  version.value += 1;
  await act(() => render(<PlanView />, page));
}

const text = (id: string): string => page.querySelector(`[data-testid="${id}"]`)?.textContent ?? "";
const key = (name: string): Promise<void> =>
  act(() => void document.activeElement!.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true })));

describe("the view", () => {
  test("planned and real makespans, requests, and why the next best plan lost", async () => {
    await shown(RUN);
    expect(text("plan-makespan")).toBe("30.0 s (28.0 s to 33.0 s)");
    expect(text("plan-real")).toContain("36.0 s +6.0 s");
    expect(text("plan-requests")).toBe("20 of 20 done, 1 failure");
    expect(text("plan-next")).toContain("max, 41.0 s (40.0 s to 42.0 s). Max takes 11.0 s longer (36.7%): it loads models.");
    const cells = [...page.querySelectorAll("[data-testid=plan-stage]")].map((row) => row.textContent);
    expect(cells[0]).toContain("+4.0 s");
    expect(cells[1]).toContain("large ×2");
  });

  test("one block is a tab stop, and arrows walk along devices, and from the plan to the run", async () => {
    await shown(RUN);
    const stops = () => [...page.querySelectorAll<HTMLElement>(".plan-track [tabindex='0']")];
    expect(stops()).toHaveLength(1);
    await act(() => stops()[0].focus());
    expect(text("plan-chosen")).toBe("The plan: small, 1 replica of 1 device, loading on device 0 from 0.0 s to 4.0 s, 4.00 s.");
    await key("ArrowRight");
    expect(text("plan-chosen")).toContain("small, 1 replica of 1 device, serving on device 0 from 4.0 s to 20.0 s");
    await key("End");
    expect(text("plan-chosen")).toContain("large, 2 replicas of 1 device");
    await key("ArrowDown");
    expect(text("plan-chosen")).toContain("The plan: large, 1 replica of 1 device, serving on device 1");
    await key("ArrowDown");
    expect(text("plan-chosen")).toContain("The run: small (small-0)");
    await key("ArrowUp");
    await key("Home");
    expect(text("plan-chosen")).toContain("The plan: large, 1 replica of 1 device, loading on device 1");
    expect(stops()).toHaveLength(1);
    expect(document.activeElement).toBe(stops()[0]);
  });

  test("the chart is there as a table too, by the address", async () => {
    await shown(RUN, "#/plan?plan.blocks=1");
    const rows = page.querySelectorAll("[data-testid=plan-blocks] tbody tr");
    expect(rows).toHaveLength(5 + 8);
    expect(rows[12].textContent).toContain("lost: its engine has ended");
  });

  test("a plan alone has no run, and says how to run it", async () => {
    await shown([PLAN]);
    expect(page.querySelectorAll(".plan-panel")).toHaveLength(1);
    expect(page.textContent).toContain("caesura run");
    expect(text("plan-stages")).toContain("not run");
    expect(page.querySelector("[data-testid=plan-real]")).toBeNull();
  });

  test("names are text, and what an older recording lacks is left out", async () => {
    await shown([{ kind: "plan", at: 1, application: "<img src=x>", blocks: [{ model: "\u202Eevil", until: 3 }] }]);
    expect(page.querySelector("img")).toBeNull();
    expect(page.textContent).not.toContain("\u202E");
    await shown([{ kind: "plan", at: 1 }]);
    expect(text("plan-chosen")).toBe("No engine was started yet.");
  });

  test("the tab is there only where a recording has a plan, which stands for requests that it lacks", () => {
    const [without, alone] = [traceOf([lanes(["r", "decode", 0])]), traceOf([PLAN])];
    expect(VIEWS.plan.has!(without)).toBe(false);
    expect(VIEWS.plan.has!(alone)).toBe(true);
    expect(viewOf("overview", alone)).toBe("plan");
    expect(viewOf("timeline", alone)).toBe("plan");
    expect(viewOf("timeline", traceOf([PLAN, lanes(["r", "decode", 0])]))).toBe("timeline");
    expect(viewOf("tools", alone)).toBe("tools");
    expect(viewOf("nowhere", without)).toBe("overview");
  });
});
