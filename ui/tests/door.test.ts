// What is checked before an entry is taken in: every kind's schema, and sizes that nothing real has.
import { describe, expect, it } from "vitest";
import { isSound } from "../src/model/door";
import type { Entry } from "../src/model/records";
import { Scale, TimeMap } from "../src/model/timemap";
import { Trace } from "../src/model/trace";
import { ticks } from "../src/views/timeline/ticks";
import { sample } from "./sample";
import { ENTRIES } from "./world";

const sound = (entry: unknown): boolean => isSound(entry as Entry);
const brokenOf = (...entries: unknown[]): number => {
  const trace = new Trace();
  trace.add(entries as Entry[]);
  return trace.broken;
};

describe("at the door", () => {
  it("whatever the recordings of these tests hold is let in", () => {
    const entries = [...sample({ sessions: 40, seed: 3 }), ...ENTRIES, { kind: "gap", at: 3 } as Entry];
    expect(entries.filter((entry) => !isSound(entry))).toEqual([]);
  });

  it.each([
    ["a request that is none", { kind: "pause", request: null, at: "x" }],
    ["a time that is a text", { kind: "opening", request: "a", at: "3" }],
    ["a time that is not finite", { kind: "session", request: "a", at: Infinity }],
    ["a time beyond all clocks", { kind: "wait", request: "a", since: 1, until: 1e18 }],
    ["a row of a lane beyond all clocks", { kind: "lanes", request: ["a"], state: ["decode"], at: [1e18] }],
    ["columns of different lengths", { kind: "lanes", request: ["a", "b"], state: ["decode"], at: [1] }],
    ["a column of texts", { kind: "steps", at: [1], running: ["3"] }],
    ["decisions that are no rows", { kind: "pause", request: "a", at: 1, decisions: [null] }],
    ["a decision without an act", { kind: "pause", request: "a", at: 1, decisions: [[0, null, 3]] }],
    ["prices that are texts", { kind: "opening", request: "a", at: 1, prices: { preserve: "dear" } }],
    ["predictions that are no list", { kind: "forecast", request: "a", at: 1, predictions: { predictor: "x" } }],
    ["a span whose name is a number", { kind: "span", trace: "t", span: "s", name: 3, start: 1, end: null }],
    ["attributes that are a list", { kind: "span", trace: "t", span: "s", name: "chat", start: 1, end: null, attributes: [] }],
  ])("%s is counted as broken and left out", (_, entry) => {
    expect(sound(entry)).toBe(false);
    expect(brokenOf(entry, { kind: "gap", at: 3 })).toBe(1);
  });

  it("what is missing, null or not known is nothing to complain about", () => {
    for (const entry of [
      { kind: "pause", request: "a", at: 1, session: null, tool: null, prices: null, decisions: [[0.5, "swap", 3]] },
      { kind: "span", trace: "t", span: "s", name: "chat", start: 1 },
      { kind: "novelty", at: "never" },
      { kind: "gap", at: 1, colour: 3 },
    ]) expect(sound(entry)).toBe(true);
  });
});

it("an axis between wild times is drawn without end neither in ticks nor in time", () => {
  const scale = new Scale(new TimeMap([{ from: 10, to: 9e10 }], 1), 0, 1e11, 1000);
  expect(ticks(scale, 0).length).toBeLessThan(2000);
  expect(ticks(scale, Infinity)).toEqual([]);
});
