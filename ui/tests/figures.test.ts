// What is said of sessions and recordings in numbers, against figures worked out by hand.
import { describe, expect, test } from "vitest";
import { STATES } from "../src/model/lane";
import type { Entry } from "../src/model/records";
import { differences, unequal } from "../src/views/compare/about";
import { furthest, match } from "../src/views/compare/match";
import { type Figure, METRICS, type Metric, measure, verdict } from "../src/views/compare/metrics";
import { figuresOf, secondsByState } from "../src/views/session/figures";
import { ENTRIES, RECORDING, lanes, traceOf } from "./world";

const metric = (id: string): Metric => METRICS.find((one) => one.id === id) as Metric;
const named = (seconds: Float64Array): Record<string, number> =>
  Object.fromEntries(STATES.map((state, code) => [state, seconds[code]]).filter(([, value]) => value));

describe("sessions", () => {
  test("are measured by their lanes and records", () => {
    const [one, two] = figuresOf(traceOf(ENTRIES), 20);
    expect(one).toMatchObject({
      id: "one", start: 0, end: 14, latency: 9, ttft: 2, tokens: 170, decoded: 36, recomputed: 100, preemptions: 1, regret: 20,
    });
    expect(named(one.seconds)).toEqual({ waiting: 4, prefill: 1, recompute: 1, decode: 3, paused: 2, dropped: 3 });
    expect(two).toMatchObject({ id: "two", start: 4, end: 12, latency: 8, ttft: 2, decoded: 20, preemptions: 0, regret: null });
  });
  test("without lanes are measured by their records", () => {
    const [one] = figuresOf(traceOf(ENTRIES.filter((entry) => !["lanes", "opening"].includes(entry.kind))), 20);
    expect(one).toMatchObject({ start: 0, end: 14, latency: 9, ttft: null, decoded: 36, tokens: 120 });
  });
  test("that go on have no latency, and their last state lasts until now", () => {
    const trace = traceOf([lanes(["r", "waiting", 0], ["r", "decode", 1])]);
    const [open] = figuresOf(trace, 7);
    expect(open).toMatchObject({ end: null, latency: null, ttft: 1, decoded: null });
    expect(named(secondsByState(open.lanes, 7))).toEqual({ waiting: 1, decode: 6 });
  });
  test("have their first token when the prefill is done, also where they are preempted right then", () => {
    const ttftOf = (...tokens: number[]) => figuresOf(traceOf([lanes(
      ["r", "waiting", 0, 0, 0, 203], ["r", "prefill", 1, 7, 0, tokens[0]], ["r", "waiting", 2, 0, 0, tokens[1]],
      ["r", "recompute", 5, 7, 0, tokens[1]], ["r", "decode", 6, 7, 0, 205],
    )]), 9)[0].ttft;
    expect(ttftOf(203, 204)).toBe(2);
    // Preempted between two chunks of its prompt it has none yet.
    expect(ttftOf(203, 203)).toBe(6);
  });
  test("of several requests leave out what was between them", () => {
    const later: Entry[] = [
      lanes(["s", "decode", 0], ["s", "ended", 2]),
      lanes(["s2", "decode", 10], ["s2", "ended", 13]),
      { kind: "session", request: "s2", session: "s", arrival: 0, at: 13, decoded_tokens: 3 },
    ];
    expect(figuresOf(traceOf(later), 20)).toMatchObject([{ id: "s", start: 0, end: 13, latency: 5 }]);
  });
});

describe("headline figures", () => {
  const found = measure(RECORDING, traceOf(ENTRIES));
  test.each<[string, number]>([
    ["sessions", 2], ["open", 0], ["latency_mean", 8.5], ["latency_p50", 8.5], ["latency_p99", 8.99],
    ["normalized", (9 / 36 + 8 / 20) / 2], ["ttft_mean", 2], ["ttft_p99", 2], ["sessions_per_second", 2 / 13],
    // All but the time from 3 to 4, in which there is only a pause, and what is behind the last end.
    ["tokens_per_second", 40 / 13], ["busy", 13], ["waiting", 3], ["recomputing", 0.5], ["swapping", 0], ["pauses", 1], ["discard", 1],
    ["preserve", 0], ["swap", 0], ["recomputed", 100], ["saved", 10], ["regret", 20], ["cost", 50], ["preemptions", 1],
  ])("%s", (id, value) => {
    const figure = found[id];
    expect("value" in figure ? figure.value : figure.why).toBeCloseTo(value, 9);
  });
  test("are all measured, and say why where they cannot be", () => {
    expect(Object.keys(found).sort()).toEqual(METRICS.map((one) => one.id).sort());
    expect(found.loaded).toEqual({ why: expect.stringContaining("steps") });
  });
  test("of coarse lanes say what those cannot tell", () => {
    const coarse = traceOf([lanes(["r", "waiting", 0], ["r", "decode", 1], ["r", "dropped", 2], ["r", "waiting", 5], ["r", "decode", 6], ["r", "ended", 8])]);
    const of = measure({ ...RECORDING, about: { lanes: "coarse" } }, coarse);
    expect(of.latency_mean).toEqual({ value: 5 });
    expect(of.ttft_mean).toEqual({ value: 1 });
    expect(of.pauses).toEqual({ value: 1 });
    for (const id of ["waiting", "swapping", "recomputing", "preemptions", "regret", "preserve", "normalized"]) {
      expect(of[id]).toEqual({ why: expect.any(String) });
    }
  });
  test("of nothing are not known rather than zero", () => {
    const of = measure(RECORDING, traceOf([{ kind: "gap", at: 1 }]));
    for (const id of ["latency_mean", "ttft_p99", "normalized", "sessions_per_second", "tokens_per_second", "regret", "waiting"]) {
      expect(of[id], id).toEqual({ why: expect.any(String) });
    }
  });
});

describe("which is better", () => {
  const of = (value: number): Figure => ({ value });
  test("depends on the figure", () => {
    expect(verdict(metric("latency_mean"), of(1), of(2))).toBe("A");
    expect(verdict(metric("sessions_per_second"), of(1), of(2))).toBe("B");
    expect(verdict(metric("pauses"), of(1), of(2))).toBe("");
  });
  test("is neither where they are nearly the same or not known", () => {
    expect(verdict(metric("ttft_mean"), of(1000), of(1004))).toBe("same");
    expect(verdict(metric("ttft_mean"), of(0), of(0))).toBe("same");
    expect(verdict(metric("ttft_mean"), of(1000), of(1006))).toBe("A");
    expect(verdict(metric("ttft_mean"), { why: "" }, of(1))).toBe("");
  });
});

describe("sessions in two recordings", () => {
  const run = (...requests: [string, number, number][]) => figuresOf(traceOf(requests.map(([id, start, end]) =>
    lanes([id, "decode", start], [id, "ended", end]))), 100);
  test("are matched by their ids", () => {
    const found = match(run(["x", 0, 5], ["y", 1, 2]), run(["y", 0, 4], ["x", 2, 3], ["z", 3, 9]));
    expect(found.by).toBe("name");
    expect(found.pairs.map((pair) => [pair.a.id, pair.b.id, pair.difference])).toEqual([["x", "x", -4], ["y", "y", 3]]);
    expect(furthest(found.pairs, 1).map((pair) => pair.a.id)).toEqual(["x"]);
  });
  test("are else matched by arrival, if as many arrived", () => {
    const a = run(["a1", 0, 5], ["a2", 1, 2]);
    const found = match(a, run(["b1", 0, 5], ["b2", 1, 9]));
    expect(found.by).toBe("arrival");
    expect(found.pairs.map((pair) => pair.b.id)).toEqual(["b1", "b2"]);
    expect(furthest(found.pairs, 9).map((pair) => pair.difference)).toEqual([7]);
    expect(match(a, run(["b1", 0, 5]))).toEqual({ by: "none", pairs: [] });
  });
});

test("what differs beside the policy is told", () => {
  const other = { ...RECORDING, about: { handling: "preserve", lanes: "exact", seed: 3 } };
  const found = differences(RECORDING, other);
  expect(found).toEqual([{ name: "handling", a: "caesura", b: "preserve" }, { name: "seed", a: "–", b: "3" }]);
  expect(unequal(found)).toEqual(["seed"]);
});
