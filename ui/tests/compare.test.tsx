// @vitest-environment happy-dom
// Comparing rightly: like with like, and where the time of two requests went.
import { render } from "preact";
import { act } from "preact/test-utils";
import { expect, test } from "vitest";
import { parse, route } from "../src/app/router";
import { current, other, recordings, version } from "../src/app/state";
import { criticalPath } from "../src/model/criticalpath";
import type { Entry, Recording } from "../src/model/records";
import { accountsOf, differing } from "../src/views/compare/accounts";
import { match, populationOf } from "../src/views/compare/match";
import { measure } from "../src/views/compare/metrics";
import { pick } from "../src/views/compare/requests";
import { CompareView } from "../src/views/compare/view";
import { half, windowIn } from "../src/views/compare/windows";
import { perTokenOf, stretchesOf } from "../src/views/request/decode";
import { figuresOf } from "../src/views/session/figures";
import { find, loaded, page } from "./mounted";
import { ENTRIES, RECORDING, lanes, span, traceOf } from "./world";

async function shown(hash: string, a: Entry[], b: Entry[] | null = null, of: Partial<Recording> = {}): Promise<void> {
  const B = { ...RECORDING, id: "b", title: "B", ...of };
  recordings.value = b ? [RECORDING, B] : [RECORDING];
  current.value = loaded(RECORDING, a);
  other.value = b && loaded(B, b);
  route.value = parse(hash);
  version.value += 1;
  await act(() => render(<CompareView />, page));
}

const ran = (id: string, from: number, to: number | null): Entry =>
  lanes([id, "decode", from], ...(to === null ? [] : [[id, "ended", to] as [string, string, number]]));

test("latencies are of the sessions that ended in both, and the others are counted", async () => {
  // In A the slow sessions were cut off: over all that ended it would look faster than B.
  const a = [ran("x", 0, 4), ran("y", 0, 6), ran("slow", 0, null)];
  const b = [ran("x", 0, 3), ran("y", 0, null), ran("slow", 0, 60)];
  await shown("#/compare?rec=a&with=b", a, b);
  const cells = [...find("metric-latency_mean").querySelectorAll("td")].map((one) => one.textContent);
  expect(cells).toEqual(["4.00 s", "3.00 s", "−1.00 s", "0.75×", "B is better"]);
  expect(find("left-out").textContent).toContain("of the 1 session that ended in both");
  expect(find("left-out").textContent).toContain("1 session that ended only in A, 1 session that ended only in B");
  expect(find("metric-sessions").querySelector("td")?.textContent).toBe("2");
});

const unlike: [string, Partial<Recording>][] = [
  ["a real and a simulated run", { source: "serve" }],
  ["two machines", { about: { ...RECORDING.about, machine: "another" } }],
  ["two stretches", { about: { ...RECORDING.about, stretch: "0 to 9" } }],
];

test.each(unlike)("of %s nothing is said to be better, faster or slower", async (_, of) => {
  const a = [ran("x", 0, 4), ran("y", 0, 6)];
  await shown("#/compare?rec=a&with=b", a, [ran("x", 0, 3), ran("y", 0, 9)], of);
  expect(find("metric-latency_mean").querySelectorAll("td")[3].textContent).not.toBe("");
  expect(page.querySelectorAll(".best").length).toBe(0);
  expect([...page.querySelectorAll('[data-testid="better"]')].map((one) => one.textContent).join("")).toBe("");
  for (const id of ["matched", "pair"]) expect(find(id).textContent).not.toMatch(/faster|slower|better/);
});

test("two runs that only have as many sessions are not called the same workload", async () => {
  const other = { about: { ...RECORDING.about } };
  await shown("#/compare?rec=a&with=b", [ran("x", 0, 4)], [ran("z", 0, 3)], other);
  expect(find("matched").textContent).toContain("by the order of their arrival");
  expect(page.textContent).not.toMatch(/(A|B) is better/);
});

test("sessions that only one side has are left out as well", () => {
  const of = (entries: Entry[]) => figuresOf(traceOf(entries), 100);
  const [a, b] = [of([ran("x", 0, 4), ran("y", 0, 6)]), of([ran("x", 0, 3), ran("z", 0, 5), ran("w", 1, null)])];
  expect(populationOf(match(a, b), a, b)).toMatchObject({ onlyA: 0, onlyB: 0, neither: 0, unmatched: 3 });
});

test("throughput is of the time in which there was anything to do", () => {
  const busy = [ran("x", 0, 2), ran("y", 0, 4)];
  const idle = [ran("x", 0, 2), ran("y", 1000, 1002)];
  const rate = (entries: Entry[]) => measure(RECORDING, traceOf(entries)).sessions_per_second;
  expect(rate(busy)).toEqual({ value: 0.5 });
  expect(rate(idle)).toEqual({ value: 0.5 });
});

test("pools of other sizes are each drawn on their own scale", async () => {
  const steps = (blocks: number): Entry =>
    ({ kind: "steps", at: [0, 1], running_blocks: [1, blocks], paused_blocks: [0, 0], free_blocks: [blocks - 1, 0] }) as unknown as Entry;
  await shown("#/compare?rec=a&with=b", [ran("x", 0, 2), steps(40)], [ran("x", 0, 2), steps(1023)]);
  expect(find("pools").textContent).toContain("A had 40 blocks, B 1\u202f023 blocks");
  await shown("#/compare?rec=a&with=b", [ran("x", 0, 2), steps(40)], [ran("x", 0, 2), steps(40)]);
  expect(find("pools")).toBeNull();
});

test("two requests of one recording are compared by where their time went", async () => {
  await shown("#/compare?cmp.of=requests&cmp.a=one&cmp.b=two", ENTRIES);
  expect(find("differs-most").textContent).toContain("What differs most is tool search: 5.00 s more in A");
  const rows = [...find("accounts").querySelectorAll("tbody tr")].map((row) => [...row.children].map((cell) => cell.textContent));
  const [one, two] = [traceOf(ENTRIES).byRequest.get("one")!, traceOf(ENTRIES).byRequest.get("two")!];
  const sums = rows.find((row) => row[0] === "together")!;
  expect(sums.slice(1, 3)).toEqual(["14.0 s", "8.00 s"]);
  const trace = traceOf(ENTRIES);
  for (const lane of [one, two]) {
    const total = [...accountsOf(trace, lane, 20).values()].reduce((sum, seconds) => sum + seconds, 0);
    expect(total).toBeCloseTo(lane.end! - lane.start, 9);
  }
  expect(differing(accountsOf(trace, one, 20), accountsOf(trace, one, 20)).every((row) => row.a === row.b)).toBe(true);
});

test("accounts that differ only by the rounding of times are the same", () => {
  const of = (waiting: number) => new Map([["waiting", waiting], ["decode", 3]]);
  expect(differing(of(0.6), of(0.6000002))).toEqual([{ name: "waiting", a: 0.6, b: 0.6 }, { name: "decode", a: 3, b: 3 }]);
  expect(differing(of(0.6), of(0.7))[0]).toEqual({ name: "waiting", a: 0.6, b: 0.7 });
});

test("time per token counts what was decoded", () => {
  const lane = traceOf([lanes(["r", "decode", 0, 1, 0, 10], ["r", "ended", 2, 0, 0, 30])]).byRequest.get("r")!;
  expect(perTokenOf(stretchesOf(traceOf([]), lane, 9))).toBeCloseTo(0.1, 9);
});

test("decoding that still goes on, whose tokens are not told yet, makes no token slower", async () => {
  const going = lanes(["r", "decode", 0, 1, 0, 10], ["r", "waiting", 2, 0, 0, 30], ["r", "decode", 3, 1, 0, 30]);
  await shown("#/compare?cmp.of=requests&cmp.a=r&cmp.b=two", [going, ...ENTRIES]);
  const row = [...find("accounts").querySelectorAll("tr")].find((one) => one.textContent?.startsWith("decode, each token"))!;
  expect(row.querySelector("td")?.textContent).toBe("100 ms");
});

test("a request is picked by its id or by words that only it has", () => {
  const trace = traceOf(ENTRIES);
  const said = new Map([["one", "What is 17 * 23?"], ["two", "What is the weather?"]]);
  expect(pick(trace, said, "two").lane?.id).toBe("two");
  expect(pick(trace, said, "weather").lane?.id).toBe("two");
  expect(pick(trace, said, "What").why).toContain("2 requests have What");
  expect(pick(trace, said, "nothing").why).toContain("No request");
});

test("two windows of one recording are measured apart", async () => {
  expect(windowIn("3.5_9")).toEqual({ t0: 3.5, t1: 9 });
  expect(windowIn("9_3")).toBeNull();
  const trace = traceOf([ran("early", 0, 2), ran("late", 10, 16)]);
  expect(measure(RECORDING, trace, { window: half(trace, false) }).latency_mean).toEqual({ value: 2 });
  expect(measure(RECORDING, trace, { window: half(trace, true) }).latency_mean).toEqual({ value: 6 });
  await shown("#/compare?cmp.of=windows&cmp.wa=0_5&cmp.wb=9_20", [ran("early", 0, 2), ran("late", 10, 16)]);
  expect([...find("metric-latency_mean").querySelectorAll("td")].slice(0, 2).map((one) => one.textContent)).toEqual(["2.00 s", "6.00 s"]);
  expect(page.querySelectorAll(".best").length).toBe(0);
});

test("the slowest of parallel calls is what bounded a run, not the last or the first", () => {
  const tool = (id: string, from: number, to: number | null) =>
    span(`execute_tool ${id}`, id, from, to, { attributes: { "gen_ai.tool.name": id } });
  const run = traceOf([
    span("invoke_agent a", "run", 0, 12), span("chat m", "c1", 0, 3), tool("quick", 2, 4), tool("slow", 2.5, 9), tool("late", 3, 5),
    span("chat m", "c2", 9.5, 12),
  ]).runs[0];
  const path = criticalPath(run, 20);
  expect(path.map((link) => [link.kind, link.span?.span ?? null, link.from, link.to, link.beside])).toEqual([
    ["turn", "c1", 0, 2.5, 0], ["call", "slow", 2.5, 9, 2], ["between", null, 9, 9.5, 0], ["turn", "c2", 9.5, 12, 0],
  ]);
});

test("the path of a run that goes on reaches until now, and adds up", () => {
  const run = traceOf([span("invoke_agent a", "run", 1, null), span("chat m", "c1", 1, 3), span("execute_tool x", "x", 3, null)]).runs[0];
  const path = criticalPath(run, 11);
  expect(path.reduce((sum, link) => sum + link.to - link.from, 0)).toBeCloseTo(10, 9);
  expect(path.at(-1)).toMatchObject({ kind: "call", from: 3, to: 11 });
});
