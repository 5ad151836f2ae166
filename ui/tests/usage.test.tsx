// @vitest-environment happy-dom
// Who used the engine: shares that never exceed what there was, by any dimension, and what they cost.
import { render } from "preact";
import { act } from "preact/test-utils";
import { expect, test } from "vitest";
import { parse, route } from "../src/app/router";
import { current, timeWindow, version } from "../src/app/state";
import { Shares } from "../src/causes/shares";
import type { Entry } from "../src/model/records";
import { costOf, pricesOf } from "../src/views/who/prices";
import { DIMENSIONS, type Stretch, type UsageRow, usedBy } from "../src/views/who/usage";
import { WhoView } from "../src/views/who/view";
import { find, loaded, page } from "./mounted";
import { SAMPLE_RECORDING, sample } from "./sample";
import { RECORDING, lanes, span, traceOf } from "./world";

const run = (id: string, request: string, more: Record<string, string>, parent: string | null = null): Entry =>
  ({ ...span("invoke_agent a", id, 0, 20, { attributes: { "caesura.request.id": request, ...more } }), parent });
const turn = (id: string, parent: string, request: string, end: number, [prompt, cached, decoded]: number[]): Entry =>
  ({ ...span("chat tiny", id, end - 1, end, { attributes: {
    "caesura.request.id": request, "gen_ai.request.model": "tiny",
    "gen_ai.usage.input_tokens": prompt, "gen_ai.usage.cache_read.input_tokens": cached, "gen_ai.usage.output_tokens": decoded,
  } }), parent });

/** Ann's main agent searches and starts a helper; Bob's session has the same name as hers. */
const ENTRIES: Entry[] = [
  lanes(
    ["m-1", "prefill", 0, 10, 0, 160], ["m-1", "decode", 2, 10, 0, 160], ["m-1", "paused", 6, 11, 0, 170],
    ["m-1", "waiting", 8, 11, 0, 180], ["m-1", "recompute", 9, 12, 0, 180], ["m-1", "decode", 10, 12, 0, 180], ["m-1", "ended", 12, 0, 0, 190],
    ["h-2", "decode", 2, 4, 0, 64], ["h-2", "ended", 6, 0, 0, 68],
    ["b-3", "decode", 4, 8, 0, 100], ["b-3", "ended", 6, 0, 0, 102],
  ),
  { kind: "pause", request: "m-1", session: "m-1", tool: "search", at: 6, outcome: "resumed", handling: "discard", pause_seconds: 2, queue_seconds: 1, recomputed_tokens: 40 },
  { kind: "session", request: "m-1", session: "m-1", at: 12, given_tokens: 10, decoded_tokens: 10, outcome: "stop" },
  {
    kind: "steps", at: [0, 2, 4, 9, 10], seconds: [2, 2, 2, 1, 2],
    prefill_tokens: [160, 0, 0, 10, 0], recompute_tokens: [0, 0, 0, 40, 0], decode_tokens: [0, 2, 3, 0, 1],
  },
  run("main", "m", { "caesura.tenant": "ann", "user.id": "jo", "session.id": "main" }),
  turn("m-a", "main", "m", 6, [160, 60, 10]),
  turn("m-b", "main", "m", 12, [180, 130, 10]),
  run("helper", "h", { "caesura.tenant": "ann", "session.id": "helper", "caesura.session.parent": "main" }),
  turn("h-a", "helper", "h", 6, [64, 0, 4]),
  run("bob", "b", { "caesura.tenant": "bob", "session.id": "main" }),
  { ...turn("b-a", "bob", "b", 6, [100, 50, 2]), status: "error" } as Entry,
  { kind: "http", at: 3, route: "/v1/chat/completions", status: 429, code: "rate", count: 3, tenant: "bob" },
];
const whole: Stretch = { trace: traceOf(ENTRIES), from: 0, until: 20, now: 20, blockTokens: 16 };
const named = (rows: readonly UsageRow[], name: string, tenant = ""): UsageRow =>
  rows.find((row) => row.name === name && (!tenant || row.tenant === tenant))!;

test("a step's seconds are divided by its tokens, and among the requests in each state", () => {
  const shares = new Shares(whole.trace, 0, 20, 16);
  const [main, helper, bob] = ["m-1", "h-2", "b-3"].map((id) => shares.of(whole.trace.byRequest.get(id)!, 20).seconds);
  // 2 s alone, half of 2 s, a third of 2 s, then 1 s of which a fifth computes a prompt that no row is of, and 2 s.
  expect(main).toBeCloseTo(2 + 1 + 2 / 3 + 0.8 + 2);
  expect(helper).toBeCloseTo(1 + 2 / 3);
  expect(bob).toBeCloseTo(2 / 3);
  expect(main + helper + bob).toBeLessThanOrEqual(shares.seconds);
  expect(shares.seconds).toBe(9);
  // A step counts with what of it lies in the stretch.
  expect(new Shares(whole.trace, 3, 5, 16).of(whole.trace.byRequest.get("h-2")!, 20).seconds).toBeCloseTo(1 / 2 + 1 / 3);
});

test("block-seconds grow with what is decoded", () => {
  const { blockSeconds } = new Shares(whole.trace, 0, 20, 16).of(whole.trace.byRequest.get("h-2")!, 20);
  expect(blockSeconds).toBeCloseTo(4 * (4 + 4 / 16 / 2));
});

test("no shares are more than the steps took, by any dimension and in any stretch", () => {
  const trace = traceOf(sample({ sessions: 30 }));
  const length = trace.to - trace.from;
  const { seconds, prefill_tokens, recompute_tokens, decode_tokens } = trace.steps.columns;
  const computing = seconds.reduce((sum, each, i) => (prefill_tokens[i] + recompute_tokens[i] + decode_tokens[i] ? sum + each : sum), 0);
  for (const [begin, end] of [[0, 1], [0.1, 0.2], [0.33, 0.34], [0.5, 0.9]]) {
    const stretch = { trace, from: trace.from + begin * length, until: trace.from + end * length, now: trace.to, blockTokens: 16 };
    const totals = DIMENSIONS.map((dimension) => usedBy(dimension, stretch));
    for (const { steps, total } of totals) {
      expect(total.seconds).toBeLessThanOrEqual(steps * (1 + 1e-9));
      expect(steps).toBeLessThanOrEqual(stretch.until - stretch.from + 1e-9);
      // Whatever the rows are by, they are parts of the same.
      expect(total.seconds).toBeCloseTo(totals[0].total.seconds);
      expect(total.blockSeconds).toBeCloseTo(totals[0].total.blockSeconds);
      expect([total.prompt, total.decoded, total.recomputed, total.failures]).toEqual(
        [totals[0].total.prompt, totals[0].total.decoded, totals[0].total.recomputed, totals[0].total.failures],
      );
    }
    if (end === 1) expect(totals[0].total.seconds).toBeGreaterThan(0.95 * computing);
  }
});

test("usage is told by who asked", () => {
  const { rows, total } = usedBy("tenant", whole);
  expect(named(rows, "ann").own).toMatchObject({ requests: 2, prompt: 404, cached: 190, told: 404, decoded: 24, recomputed: 40, failures: 0 });
  expect(named(rows, "bob").own).toMatchObject({ requests: 1, prompt: 100, cached: 50, decoded: 2, failures: 4 });
  expect(total.failures).toBe(4);
  expect(usedBy("model", whole).rows.map((row) => row.name).sort()).toEqual(["", "tiny"]);
  expect(named(usedBy("user", whole).rows, "jo", "ann").own.decoded).toBe(20);
});

test("a tool has its pauses until the request decodes again, and the tokens of its results", () => {
  const { rows } = usedBy("tool", whole);
  const search = named(rows, "search").own;
  expect(search.seconds).toBeCloseTo(0.8);
  expect(search.blockSeconds).toBeCloseTo(2 * 11 + 11 + 12);
  expect(search).toMatchObject({ prompt: 10, recomputed: 40, decoded: 0 });
  expect(named(rows, "").own.prompt).toBe(504 - 10);
});

test("sub-agents are below their parents, with sums, and sessions of two tenants are two", () => {
  const { rows } = usedBy("session", whole);
  expect(rows.filter((row) => row.name === "main").map((row) => row.tenant).sort()).toEqual(["ann", "bob"]);
  const main = named(rows, "main", "ann");
  expect(main.children.map((row) => row.name)).toEqual(["helper"]);
  expect([main.own.prompt, main.whole.prompt]).toEqual([340, 404]);
  expect(rows.some((row) => row.name === "helper")).toBe(false);
});

test("sessions that are said to have started each other are shown, once each", () => {
  const pair = traceOf([
    run("x", "x", { "session.id": "x", "caesura.session.parent": "y" }), turn("x-a", "x", "x", 2, [1, 0, 1]),
    run("y", "y", { "session.id": "y", "caesura.session.parent": "x" }), turn("y-a", "y", "y", 2, [1, 0, 1]),
  ]);
  const { rows } = usedBy("session", { ...whole, trace: pair });
  expect(rows.map((row) => row.name).sort()).toEqual(["x", "y"]);
});

test("prices of tokens, memory and time add up", () => {
  const { own } = named(usedBy("tenant", whole).rows, "bob");
  const usage = { ...own, blockSeconds: 1e6, seconds: 1800 };
  expect(costOf(usage, pricesOf("input:2,output:10"))).toBeCloseTo((100 * 2 + 2 * 10) / 1e6);
  expect(costOf(usage, pricesOf("input:2,cached:1"))).toBeCloseTo((50 * 2 + 50) / 1e6);
  expect(costOf(usage, pricesOf("blocks:0.5,gpu:3,gpus:2"))).toBeCloseTo(0.5 + 3);
  expect(costOf(usage, pricesOf("gpus:8,input:-1,other:3,output:x"))).toBe(null);
});

test("the view folds out sub-agents, shows costs once there are prices, and leads to the requests", async () => {
  current.value = loaded(RECORDING, ENTRIES);
  timeWindow.value = null;
  route.value = parse("#/who?wh.by=session");
  version.value += 1;
  await act(() => render(<WhoView />, page));
  const names = (): string[] => [...page.querySelectorAll("[data-testid=who-row] th")].map((one) => one.textContent ?? "");
  expect(names().some((name) => name.startsWith("helper"))).toBe(false);
  const fold = page.querySelector<HTMLElement>(".wh-fold")!;
  await act(() => fold.click());
  expect(fold.getAttribute("aria-expanded")).toBe("true");
  expect(names().some((name) => name.startsWith("helper"))).toBe(true);
  expect(page.querySelector("[data-testid=cost]")).toBe(null);
  const price = find("price-input") as HTMLInputElement;
  await act(() => {
    price.value = "1000000";
    price.dispatchEvent(new Event("change", { bubbles: true }));
  });
  expect(route.value.query["wh.price"]).toBe("input:1000000");
  expect(page.querySelector("[data-testid=cost]")!.textContent).toBe("404");
  const href = page.querySelector("[data-testid=who-row] a")!.getAttribute("href")!;
  expect(parse(href).query).toMatchObject({ "tl.session": "main", "tl.tenant": "ann" });
  expect(find("who-rule").textContent).toContain("is told apart");
});

test("who is there at a moment, and what they hold, without those who left and the queue's blocks", () => {
  const { rows, total } = usedBy("tenant", { ...whole, until: 5.001, now: 5, moment: 5 });
  expect(named(rows, "ann").own).toMatchObject({ running: 2, paused: 0, waiting: 0, held: 14 });
  expect(named(rows, "bob").own).toMatchObject({ running: 1, held: 8 });
  expect(total).toMatchObject({ running: 3, held: 22 });
  const behind = usedBy("tenant", { ...whole, until: 8.001, now: 8, moment: 8 });
  expect(behind.total).toMatchObject({ running: 0, paused: 0, waiting: 1, held: 0 });
  // A paused request is its tool's.
  expect(named(usedBy("tool", { ...whole, until: 7, now: 7, moment: 7 }).rows, "search").own).toMatchObject({ paused: 1, held: 11 });
  expect(usedBy("tool", whole).total).toMatchObject({ running: 0, paused: 0, waiting: 0, held: 0 });
});

test("a recording that is over has no now", async () => {
  const shown = loaded(RECORDING, ENTRIES);
  current.value = shown;
  timeWindow.value = null;
  route.value = parse("#/who?wh.now=1");
  version.value += 1;
  await act(() => render(<WhoView />, page));
  expect(find("who-now")).toBe(null);
  expect(find("requests")).not.toBe(null);
  current.value = { ...shown, recording: { ...RECORDING, live: true } };
  await act(() => {
    version.value += 1;
  });
  expect(find("who-now").getAttribute("aria-pressed")).toBe("true");
  expect(find("requests")).toBe(null);
  expect([find("running"), find("held")].map((one) => one.textContent)).toEqual(["0", "0"]);
});

test("a sample in which nobody is named has one row", async () => {
  current.value = loaded(SAMPLE_RECORDING, sample({ sessions: 3 }));
  route.value = parse("#/who");
  version.value += 1;
  await act(() => render(<WhoView />, page));
  expect([...page.querySelectorAll("[data-testid=who-row] th")].map((one) => one.textContent)).toEqual(["without a key's name"]);
});
