// What is said of tools: durations, predictions, failures, regret by handling.
import { describe, expect, test } from "vitest";
import type { Entry, PauseEntry } from "../src/model/records";
import { byHandling, compared, failuresOf, ordered, rowsOf, together } from "../src/views/tools/rows";
import { span, traceOf } from "./world";

const pause = (request: string, tool: string | null, at: number, more: Partial<PauseEntry>): Entry => ({
  kind: "pause", request, session: request, tool, at, outcome: "resumed", handling: "preserve", pause_seconds: 1,
  predicted_seconds: 1, cost: 0, queue_cost: 0, work_cost: 0, regret: 0, wanted_seconds: 1, ...more,
});

const TRACE = traceOf([
  span("invoke_agent a", "run", 0, 20),
  pause("r", "search", 1, { pause_seconds: 2, predicted_seconds: 1, cost: 10, regret: 4 }),
  pause("r", "search", 5, { pause_seconds: 4, predicted_seconds: 8, cost: 30, regret: 6, handling: "swap" }),
  pause("q", "search", 6, { pause_seconds: 99, outcome: "ended", handling: "none", cost: 5, regret: 1 }),
  pause("r", "add", 9, { pause_seconds: 0.5, predicted_seconds: 0.5 }),
  pause("r", null, 11, {}),
  { kind: "opening", request: "r", session: "r", tool: "ask", person: true, at: 15, predicted_seconds: 60 },
  span("execute_tool search", "c1", 1, 3, { attributes: { "gen_ai.tool.name": "search" } }),
  span("execute_tool search", "c2", 5, 9, { status: "error", attributes: { "gen_ai.tool.name": "search", "error.type": "timeout" } }),
  span("execute_tool search", "c3", 6, 7, { status: "error", attributes: { "gen_ai.tool.name": "search" } }),
]);

describe("a tool's row", () => {
  const rows = rowsOf(TRACE);
  const of = (tool: string) => rows.find((row) => row.tool === tool)!;
  test("has its pauses and calls, and those without a name together", () => {
    expect(rows.map((row) => row.tool)).toEqual(["", "add", "ask", "search"]);
    expect(of("search")).toMatchObject({ failures: 2, p50: 3, cost: 15, totalCost: 45, regret: 11, paused: 105, person: false });
    expect(of("search").pauses.length).toBe(3);
    expect(of("search").calls.length).toBe(3);
    expect(of("ask")).toMatchObject({ person: true, p50: NaN, regret: NaN });
  });
  test("leaves broken off pauses out of its durations and predictions", () => {
    expect([...of("search").seconds]).toEqual([2, 4]);
    expect(compared(of("search").pauses).length).toBe(2);
    // Half of what it was, and twice of it.
    expect(of("search").misjudged).toMatchObject({ count: 2, median: 1.25, within: 0 });
  });
  test("is sorted by any column, unknown values last", () => {
    const names = (key: Parameters<typeof ordered>[1], ascending: boolean) => ordered(rows, key, ascending).map((row) => row.tool);
    expect(names("tool", false)).toEqual(["search", "ask", "add", ""]);
    expect(names("p50", true)).toEqual(["add", "", "search", "ask"]);
    expect(names("p50", false)).toEqual(["search", "", "add", "ask"]);
    expect(names("regret", false)[0]).toBe("search");
    expect(names("bias", false)[0]).toBe("search");
  });
  test("of all tools holds all pauses", () => {
    expect(together(TRACE, rows)).toMatchObject({ failures: 2, regret: 11 });
    expect(together(TRACE, rows).pauses.length).toBe(6);
  });
});

test("failures are counted by kind", () => {
  expect(failuresOf(TRACE.runs[0].calls)).toEqual([["timeout", 1], ["error", 1]]);
});

test("what handlings came to counts ended pauses", () => {
  expect(byHandling(TRACE.pauses)).toEqual([
    { handling: "preserve", pauses: 3, cost: 10, regret: 4 },
    { handling: "swap", pauses: 1, cost: 30, regret: 6 },
    { handling: "none", pauses: 1, cost: 5, regret: 1 },
  ]);
});

test("a pause that a new request followed is none that nobody came back to", () => {
  const followed = traceOf([pause("r", "add", 1, { outcome: "followed", handling: "none", cost: 2 })]);
  expect(byHandling(followed.pauses)).toMatchObject([{ handling: "followed", pauses: 1, cost: 2 }]);
});
