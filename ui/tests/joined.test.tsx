// @vitest-environment happy-dom
// Several recordings as one: of servers that are busy at the same time and give their requests the same ids.
import { render } from "preact";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { start } from "../src/app/load";
import { parse, route, setQuery } from "../src/app/router";
import { Shell } from "../src/app/shell";
import { connection, current, filters, joined, mishap, nowOf, other, timeWindow } from "../src/app/state";
import { daysOf, gather, labelsOf, namesIn, together } from "../src/app/together";
import { holdersOf } from "../src/causes/holders";
import { ledgerOf } from "../src/causes/ledger";
import { slowedIn } from "../src/causes/slowed";
import { failingIn } from "../src/model/failing";
import { Joined, Part } from "../src/model/joined";
import type { Entry } from "../src/model/records";
import { recordingOf } from "../src/model/records";
import { Trace } from "../src/model/trace";
import type { Following, Source } from "../src/sources/source";
import { throughput, binsOf } from "../src/views/overview/series";
import { cutIn, openAt } from "../src/views/overview/summary";
import { itemsOf } from "../src/views/session/items";
import { lanesOf } from "../src/views/timeline/rows";
import { NO_MORE } from "../src/views/timeline/rows/filter";
import { rowsOf } from "../src/views/tools/rows";
import { usedBy } from "../src/views/who/usage";
import { outagesSaid } from "../src/model/restarts";
import { Scale, TimeMap } from "../src/model/timemap";
import type { Frame } from "../src/views/timeline/frame";
import { paintOutages } from "../src/views/timeline/paintaxis";
import { sample } from "./sample";
import { ENTRIES, lanes } from "./world";

/** The same entries some seconds later. */
const later = (entries: readonly Entry[], by: number): Entry[] => JSON.parse(JSON.stringify(entries), (key, value) => {
  if (["at", "start", "end", "since", "until", "arrival"].includes(key)) return Array.isArray(value) ? value.map((one) => one + by) : typeof value === "number" ? value + by : value;
  return value;
});

const alone = (entries: readonly Entry[]): Trace => {
  const trace = new Trace();
  trace.add(entries);
  return trace;
};

function joinedOf(...each: Entry[][]): { whole: Joined; parts: Part[] } {
  const parts = each.map((entries, place) => {
    const part = new Part(String(place + 1), "ab"[place]);
    part.add(entries);
    return part;
  });
  const whole = new Joined(parts);
  whole.refresh();
  return { whole, parts };
}

describe("two servers with equal ids at the same time", () => {
  const second = later(ENTRIES, 6);
  const { whole } = joinedOf(ENTRIES, second);
  const own = [alone(ENTRIES), alone(second)];

  it("keep their requests, pauses and sessions apart, in the order of arrival", () => {
    expect(whole.lanes.map((lane) => lane.id)).toEqual(["1:one", "1:two", "2:one", "2:two"]);
    expect(whole.lanes.map((lane) => whole.partOf(lane.id).server)).toEqual(["a", "a", "b", "b"]);
    expect([...whole.sessions.keys()].sort()).toEqual(own.flatMap((trace, place) => [...trace.sessions.keys()].map((id) => `${place + 1}:${id}`)).sort());
    expect(whole.pausesOf("1:one").map((pause) => pause.at)).toEqual([3]);
    expect(whole.pausesOf("2:one").map((pause) => pause.at)).toEqual([9]);
    expect(whole.pauses.map((pause) => pause.request)).toEqual(["1:one", "2:one"]);
    // Who wanted its blocks was a request of the same engine.
    expect(whole.pauses[1].end?.wanted_by?.[0]?.[0]).toBe("2:two");
    expect(whole.pauses[1].end?.decisions?.[0]?.[7]).toBe("2:two");
    // A client knows its id without our mark.
    expect(whole.laneOf("two")?.id).toBe("1:two");
  });

  it("are slowed by their own engine alone", () => {
    const ledger = ledgerOf(whole, whole.to);
    const each = own.map((trace) => ledgerOf(trace, trace.to));
    expect(ledger.ended.map((one) => one.lane.id)).toEqual(["1:two", "1:one", "2:two", "2:one"]);
    const seconds = (list: { kind: string; seconds: number }[]): [string, number][] => list.map((one): [string, number] => [one.kind, Math.round(one.seconds * 1e6) / 1e6]).sort();
    const sums = new Map<string, number>();
    for (const one of each) for (const { kind, seconds: took } of slowedIn(one, -1, 100, one.trace.to)) sums.set(kind, (sums.get(kind) ?? 0) + took);
    const joinedSums = new Map<string, number>();
    for (const { kind, seconds: took } of slowedIn(ledger, -1, 100, whole.to)) joinedSums.set(kind, (joinedSums.get(kind) ?? 0) + took);
    const list = (of: Map<string, number>): { kind: string; seconds: number }[] => [...of].map(([kind, took]) => ({ kind, seconds: took }));
    expect(seconds(list(joinedSums))).toEqual(seconds(list(sums)));
    expect(holdersOf(whole, "1:one", 6, 12)).toEqual(holdersOf(own[0], "one", 6, 12));
    expect(holdersOf(whole, "2:one", 12, 18)).toEqual(holdersOf(own[1], "one", 12, 18));
  });

  it("have no steps and no blocks together", () => {
    expect(whole.steps.length).toBe(0);
    expect(whole.restarts.outages(1e6)).toEqual([]);
  });

  it("are found by the filter of a server", () => {
    const filter = { q: "", tool: "", state: "", outcome: "" };
    const ids = (server: string): string[] => lanesOf(whole, whole.to, { filters: filter, more: { ...NO_MORE, server } }).map((lane) => lane.id);
    expect([ids("a"), ids("b"), ids("").length]).toEqual([["1:one", "1:two"], ["2:one", "2:two"], 4]);
    expect(lanesOf(whole, whole.to, { filters: { ...filter, q: "two" } }).map((lane) => lane.id)).toEqual(["1:two", "2:two"]);
  });
});

describe("figures of two large recordings", () => {
  const entries = sample({ sessions: 30, seed: 3 });
  const second = later(sample({ sessions: 20, seed: 5 }), 11);
  const { whole } = joinedOf(entries, second);
  const own = [alone(entries), alone(second)];

  it.each(["tenant", "user", "session", "tool", "model"] as const)("are sums of both by %s", (dimension) => {
    const ask = (trace: Trace) => usedBy(dimension, { trace, from: -1, until: 1e6, now: trace.to, blockTokens: 16 });
    const [a, b] = own.map(ask);
    const all = ask(whole);
    expect(all.steps).toBeCloseTo(a.steps + b.steps, 6);
    for (const name of ["requests", "prompt", "decoded", "blockSeconds", "seconds", "failures", "recomputed"] as const) {
      expect(all.total[name], name).toBeCloseTo(a.total[name] + b.total[name], 4);
    }
  });

  it("are each one's by server", () => {
    const { rows } = usedBy("server", { trace: whole, from: -1, until: 1e6, now: whole.to, blockTokens: 16 });
    const alone = own.map((trace) => usedBy("tenant", { trace, from: -1, until: 1e6, now: trace.to, blockTokens: 16 }).total);
    expect(rows.map((row) => row.name).sort()).toEqual(["a", "b"]);
    for (const [place, name] of ["a", "b"].entries()) {
      const { own: found } = rows.find((row) => row.name === name)!;
      expect([found.requests, found.decoded]).toEqual([alone[place].requests, alone[place].decoded]);
      expect(found.seconds).toBeCloseTo(alone[place].seconds, 6);
    }
  });

  it("are sums of both by tool, and in the list of sessions", () => {
    const many = (trace: Trace, tool: string): number => rowsOf(trace).find((row) => row.tool === tool)?.pauses.length ?? 0;
    for (const tool of whole.tools) expect(many(whole, tool), tool).toBe(many(own[0], tool) + many(own[1], tool));
    const items = itemsOf(whole, whole.to);
    expect(items.length).toBe(own.reduce((sum, trace) => sum + itemsOf(trace, trace.to).length, 0));
    expect(new Set(items.map((item) => item.id)).size).toBe(items.length);
    expect(new Set(items.map((item) => item.server))).toEqual(new Set(["a", "b"]));
    expect(failingIn(whole, -1, 1e6).reduce((sum, one) => sum + one.times, 0))
      .toBe(own.reduce((sum, trace) => sum + failingIn(trace, -1, 1e6).reduce((all, one) => all + one.times, 0), 0));
  });

  it("tokens per second are those of both", () => {
    const bins = binsOf(new TimeMap(), whole.from, whole.to, 7);
    const top = (list: Trace[]): number[] => throughput(list.map((trace) => trace.steps), bins).layers[0].values as number[];
    const [a, b, all] = [top([own[0]]), top([own[1]]), top([...whole.parts])];
    all.forEach((value, place) => expect(value).toBeCloseTo(a[place] + b[place], 6));
  });
});

describe("engines that died", () => {
  const death = (at: number, state: string, seconds: number | null = null): Entry => ({ kind: "restart", at, why: "out of memory", state, seconds });
  const refused: Entry = { kind: "http", at: 2, route: "/v1/responses", status: 404, code: "not_found" };
  const { whole, parts } = joinedOf(
    [...ENTRIES, death(15, "restarted", 10), refused],
    [...later(ENTRIES, 6), death(21, "down"), refused, refused],
  );

  it("are bands with their servers' names, up to where each recording ends", () => {
    expect(whole.restarts.outages(100)).toEqual([{ from: 15, to: 25, server: "a" }, { from: 21, to: 100, server: "b" }]);
    parts[1].close();
    whole.refresh();
    expect(whole.restarts.outages(100)[1]).toEqual({ from: 21, to: parts[1].cut, server: "b" });
    // Neither is an outage of all.
    expect(whole.restarts.down).toBeNull();
    const said = outagesSaid(whole.restarts, 0, 20);
    expect(said).toContain("the engine of a was dead for 10.0 s");
    expect(said).not.toContain("of b");
  });

  it("are failures of their servers, as all that failed there", () => {
    const rows = failingIn(whole, 0, 100).map((row) => [row.kind, row.server, row.times]);
    expect(rows).toContainEqual(["404 not there", "a", 1]);
    expect(rows).toContainEqual(["404 not there", "b", 2]);
    expect(rows.filter(([kind]) => kind === "engine died").map(([, server]) => server).sort()).toEqual(["a", "b"]);
  });

  it("have their names in the timeline, also where a band is narrow", () => {
    const [bands, names]: [number[], [string, number, number][]] = [[], []];
    const context = {
      save() {}, restore() {}, beginPath() {}, clip() {}, moveTo() {}, lineTo() {}, stroke() {}, fillRect() {},
      rect: (x: number) => void bands.push(x), measureText: (text: string) => ({ width: 6 * text.length }),
      fillText: (text: string, x: number, y: number) => void names.push([text, x, y]),
    };
    const scale = new Scale(new TimeMap(), 0, 1000, 1000);
    paintOutages({ context, colours: {}, scale, height: 400, trace: whole, now: 1000 } as unknown as Frame);
    expect(bands).toEqual([15, 21]);
    expect(names.map(([text]) => text.split(" ")[0])).toEqual(["a", "b"]);
    expect(names[0][2]).not.toBe(names[1][2]);
  });
});

it("the lives of a server: what one's end cut off does not go on in the next", () => {
  const first = [lanes(["x", "waiting", 0], ["x", "decode", 1, 4, 0, 10], ["y", "waiting", 2], ["y", "ended", 3])];
  const { whole, parts } = joinedOf(first, [lanes(["x", "waiting", 100], ["x", "decode", 101, 4, 0, 10])]);
  parts[0].close();
  whole.refresh();
  const [x] = whole.lanes;
  expect(x.until(1, 500)).toBe(3);
  expect([openAt(whole, 50), openAt(whole, 102), cutIn(whole, 0, 50), cutIn(whole, 50, 500)]).toEqual([0, 1, 1, 0]);
  expect(usedBy("tenant", { trace: whole, from: 0, until: 1000, now: 111, blockTokens: 0 }).total.blockSeconds).toBe(4 * 2 + 4 * 10);
  const [before, after] = itemsOf(whole, 111).filter((item) => item.end === null);
  expect([before.id, before.duration, after.id, after.duration]).toEqual(["1:x", 3, "2:x", 11]);
});

describe("which recordings", () => {
  const at = (day: number, hour: number): number => new Date(2026, 10, day, hour).getTime() / 1000;
  const list = [
    recordingOf({ id: 4, started: at(27, 9), entries: 5, about: { server: "b" } }),
    recordingOf({ id: 3, started: at(27, 8), entries: 5, about: { server: "a" } }),
    recordingOf({ id: 2, started: at(27, 7), entries: 5, about: { server: "a" } }),
    recordingOf({ id: 1, started: at(26, 7), entries: 5, about: { server: "a" } }),
  ];

  it("are offered by day, and called by server and time", () => {
    expect(daysOf(list).map(({ list: own }) => own.map((one) => one.id))).toEqual([[4, 3, 2]]);
    const labels = labelsOf(list.slice(0, 3));
    expect(labels[0]).toBe("b");
    expect(new Set(labels).size).toBe(3);
    expect(labels[1]).toMatch(/^a, .*08:00/);
    expect(namesIn("1,2,,2,3")).toEqual(["1", "2", "3"]);
  });

  it("have only those facts together that are the same", () => {
    const [a, b] = [{ ...list[0], about: { block_size: 16, server: "b" } }, { ...list[1], about: { block_size: 16, server: "a" } }];
    expect(together([a, b]).recording.about).toEqual({ block_size: 16 });
  });
});

describe("the page", () => {
  let page: HTMLElement;
  const follows = new Map<string, Following>();
  const fails = new Set<string>();

  beforeEach(() => {
    vi.useFakeTimers();
    page = document.createElement("div");
    document.body.append(page);
  });
  afterEach(() => {
    render(null, page);
    page.remove();
    current.value = joined.value = other.value = null;
    timeWindow.value = null;
    mishap.value = "";
    fails.clear();
    location.hash = "";
    setQuery({ rec: "", part: "" });
    route.value = parse("");
    vi.useRealTimers();
  });

  const source = (live: boolean, many = 2): Source => ({
    kind: "server",
    recordings: () => Promise.resolve(Array.from({ length: many }, (_, place) =>
      recordingOf({ id: place + 1, title: `serve ${place}`, live, entries: 9, ended: live ? null : 40, about: { server: "abcdef"[place] } }))),
    follow(recording, to) {
      follows.set(String(recording.id), to);
      if (fails.has(String(recording.id))) return Promise.reject(new Error("It is gone."));
      to.entries(recording.id === 1 ? ENTRIES : later(ENTRIES, 6), 9, 9);
      to.complete();
      if (live) to.connection("live");
      return new Promise(() => undefined);
    },
    artifact: () => Promise.reject(new Error("no files here")),
    download: null,
  });

  async function open(rec: string, live = false, many = 2): Promise<void> {
    setQuery({ rec });
    await start(() => Promise.resolve(source(live, many)));
    await vi.advanceTimersByTimeAsync(3000);
    render(<Shell />, page);
    await vi.advanceTimersByTimeAsync(3000);
  }
  const find = (id: string): HTMLElement | null => page.querySelector(`[data-testid="${id}"]`);

  it("shows all, or the one that is chosen", async () => {
    await open("1,2");
    expect(joined.value).toBe(current.value);
    expect(page.textContent).toContain("4 requests ended in this recording");
    expect(find("joined")?.textContent).toContain("2 recordings in one");
    expect([...page.querySelectorAll(".ov-tokens")].length + page.querySelectorAll(".ov-figures p").length).toBe(2);
    setQuery({ part: "2" });
    await vi.advanceTimersByTimeAsync(1000);
    expect(current.value?.trace.lanes.map((lane) => lane.id)).toEqual(["2:one", "2:two"]);
    expect(find("joined")).toBeNull();
    setQuery({ part: "" });
    location.hash = "#/memory?rec=1,2";
    await vi.advanceTimersByTimeAsync(1000);
    expect(find("choose-one")?.querySelectorAll("button").length).toBe(2);
    // One alone is shown as it is: without marks.
    setQuery({ rec: "1" });
    await vi.advanceTimersByTimeAsync(3000);
    expect(joined.value).toBeNull();
    expect(current.value?.trace.lanes.map((lane) => lane.id)).toEqual(["one", "two"]);
  });

  it("shows the others where one cannot be read, and says so", async () => {
    fails.add("2");
    await open("1,2");
    expect(page.textContent).toContain("b could not be read to its end. It is gone.");
    expect(page.textContent).toContain("2 requests ended in this recording");
  });

  it("follows all that are live, and says which connection is broken", async () => {
    await open("1,2", true);
    expect(connection.value.state).toBe("live");
    follows.get("2")!.entries([lanes(["new", "waiting", 30])], 0, 0);
    await vi.advanceTimersByTimeAsync(2000);
    expect(current.value?.trace.laneOf("new")?.id).toBe("2:new");
    follows.get("2")!.connection("reconnecting", "The connection broke.");
    expect(connection.value).toEqual({ state: "reconnecting", text: "b: The connection broke." });
    follows.get("2")!.connection("ended");
    expect(connection.value.state).toBe("live");
    // It ended with its server, while time goes on for the other.
    await vi.advanceTimersByTimeAsync(60_000);
    const shown = current.value!;
    const lane = shown.trace.laneOf("new")!;
    expect([lane.end, lane.until(0, nowOf(shown))]).toEqual([null, 30]);
  });

  it("follows no more live ones than a browser has connections for", async () => {
    await open("1,2,3,4,5", true, 5);
    expect(joined.value?.parts?.length).toBe(4);
    expect(find("joined")?.textContent).toContain("4 recordings in one");
    expect(mishap.value).toContain("1 of 5 live recordings are left out");
  });
});

it("what is said of all waits for each", () => {
  const whole = together([recordingOf({ id: 1, entries: 3 }), recordingOf({ id: 2, entries: 3, title: "x" })]);
  whole.parts[0].state = "ready";
  gather(whole as never);
  expect(whole.state).toBe("loading");
  whole.parts[1].state = "error";
  gather(whole as never);
  expect(whole.state).toBe("ready");
  expect(filters.value.q).toBe("");
});
