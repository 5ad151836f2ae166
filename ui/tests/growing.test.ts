// What grows with a live recording: the same as if it were made anew from all of it, and not made anew where nothing is new.
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Pace } from "../src/app/pace";
import type { Entry } from "../src/model/records";
import { Trace } from "../src/model/trace";
import { Holders, holdersOf } from "../src/views/memory/holders";
import { figuresOf } from "../src/views/session/figures";
import { itemsOf, listed } from "../src/views/session/items";
import { sample } from "./sample";

const entries = sample({ sessions: 60, seed: 11 });

/** A trace of the entries in batches; `look` sees it after each. */
function growing(batch: number, look: (trace: Trace) => void): Trace {
  const trace = new Trace();
  for (let from = 0; from < entries.length; from += batch) {
    trace.add(entries.slice(from, from + batch));
    look(trace);
  }
  return trace;
}

function whole(): Trace {
  const trace = new Trace();
  trace.add(entries);
  return trace;
}

/** Figures and items without the objects of the trace that they were made in. */
const plain = (value: unknown): unknown => JSON.parse(JSON.stringify(value, (key, one) =>
  key === "lanes" ? one.map((lane: { id: string; length: number }) => [lane.id, lane.length]) : key === "pauses" ? one.length : key === "runs" ? one.map((run: { id: string }) => run.id) : one));

describe("figures of a growing recording", () => {
  it("are those of all of it", () => {
    const grown = growing(40, (trace) => figuresOf(trace, trace.to));
    expect(plain(figuresOf(grown, grown.to))).toEqual(plain(figuresOf(whole(), grown.to)));
  });

  it("are made anew for what has changed only", () => {
    const grown = growing(1000, (trace) => itemsOf(trace, trace.to));
    const before = itemsOf(grown, grown.to);
    const ended = before.filter((item) => item.end !== null);
    const { lanes: [lane] } = ended[3].sessions[0];
    grown.add([{ kind: "wait", request: lane.id, since: 1, until: 2 }, { kind: "gap", at: grown.to + 60 }]);
    expect(itemsOf(grown, grown.to).filter((item) => item.end !== null)).toEqual(ended);
    itemsOf(grown, grown.to).filter((item) => item.end !== null).forEach((item, i) => expect(item).toBe(ended[i]));
    grown.add([{ kind: "lanes", request: [lane.id], state: ["decode"], at: [grown.to], tokens: [1e6] }]);
    const changed = itemsOf(grown, grown.to).filter((item) => !before.includes(item) && item.tokens === 1e6);
    expect(changed).toHaveLength(1);
  });

  it("keep sessions together whose records come late", () => {
    const rows: Entry[] = [
      { kind: "lanes", request: ["a", "b"], state: ["decode", "decode"], at: [1, 2] },
      { kind: "opening", request: "b", at: 3, tool: "search" },
    ];
    const trace = new Trace();
    trace.add(rows);
    expect(figuresOf(trace, 4).map((one) => [one.id, one.pauses.length])).toEqual([["a", 0], ["b", 1]]);
    trace.add([{ kind: "pause", request: "b", session: "a", at: 3, tool: "search", pause_seconds: 1 }]);
    expect(figuresOf(trace, 4).map((one) => [one.id, one.lanes.length, one.pauses.length])).toEqual([["a", 2, 1]]);
  });
});

describe("items of a growing recording", () => {
  it("are those of all of it, and sorted by any column", () => {
    const grown = growing(35, (trace) => itemsOf(trace, trace.to));
    expect(plain(itemsOf(grown, grown.to))).toEqual(plain(itemsOf(whole(), grown.to)));
    const items = itemsOf(grown, grown.to);
    const longest = listed(items, "", "duration", false);
    expect(longest.map((item) => item.duration)).toEqual(items.map((item) => item.duration).sort((a, b) => b - a));
    const [first] = items[0].sessions;
    expect(listed(items, first.id.slice(0, 8), "start", true)[0].id).toBe(items[0].id);
    expect(listed(items, first.id.slice(-3), "start", true), "digits within an id are nothing to search for").toEqual([]);
    expect(listed(items, "tallest TREE", "start", true)).toHaveLength(items.length);
    expect(items, "the order of the items themselves stays").toEqual(itemsOf(grown, grown.to));
  });
});

describe("holders of a growing recording", () => {
  it.each([7, 64, 5000])("are those of all of it, in batches of %i", (batch) => {
    const grown = growing(batch, holdersOf);
    const [held, all] = [holdersOf(grown)!, holdersOf(whole())!];
    expect(held.length).toBe(all.length);
    for (let i = 0; i < all.length; i += 13) {
      if (all.at[i + 1] === all.at[i]) continue; // what happens at once has no order
      expect([held.at[i], held.after(i)]).toEqual([all.at[i], all.after(i)]);
    }
  });

  it("are summed up anew where an engine's rows come late", () => {
    const trace = new Trace();
    const row = (request: string, at: number, blocks: number): Entry => ({ kind: "lanes", request: [request], state: ["decode"], at: [at], blocks: [blocks] });
    trace.add([row("a", 1, 2), row("b", 5, 3)]);
    holdersOf(trace);
    trace.add([row("c", 3, 10)]);
    const held = holdersOf(trace)!;
    expect([1, 3, 5].map((time) => held.after(held.indexAt(time)).otherBlocks)).toEqual([2, 12, 15]);
    const late = new Holders();
    expect(late.grow(trace)).toBe(true);
    trace.add([row("a", 0.5, 1)]);
    expect(late.grow(trace)).toBe(false);
  });
});

describe("a pace", () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  it("draws at once what is cheap, and lets time pass after what is not", async () => {
    let now = 0;
    let cost = 0;
    const drawn: number[] = [];
    const pace = new Pace(() => {
      drawn.push(now);
      now += cost;
    }, () => now);
    pace.ask();
    await Promise.resolve();
    pace.ask();
    await Promise.resolve();
    expect(drawn).toEqual([0, 0]);
    cost = 100;
    pace.ask();
    await Promise.resolve();
    expect(drawn).toHaveLength(3);
    pace.ask();
    pace.ask();
    expect(drawn).toHaveLength(3);
    now = 500;
    await vi.advanceTimersByTimeAsync(500);
    expect(drawn, "the last change is drawn, once").toEqual([0, 0, 0, 500]);
  });

  it("draws nothing once it is stopped", async () => {
    let now = 0;
    let drawn = 0;
    const pace = new Pace(() => {
      drawn += 1;
      now += 50;
    }, () => now);
    pace.ask();
    await Promise.resolve();
    pace.ask();
    pace.stop();
    await vi.advanceTimersByTimeAsync(10_000);
    expect(drawn).toBe(1);
  });
});
