// A request's time: every second in one row, pauses by who took them, decoding by what ran beside it.
import { describe, expect, it, test } from "vitest";
import type { Entry, PauseEntry, SpanEntry } from "../src/model/records";
import type { Trace } from "../src/model/trace";
import { type Key, accountOf } from "../src/views/request/account";
import { companions, hasSlot, prefills } from "../src/views/request/blockers";
import { slowdown, stretchesOf, usualStep } from "../src/views/request/decode";
import { reasonOf } from "../src/views/request/decoding";
import { QUESTIONS, mainLack } from "../src/views/request/lacks";
import { causesOf } from "../src/causes/causes";
import { ledgerOf } from "../src/causes/ledger";
import { type Share, ownSeconds, piecesOf, sharesOf, splitOf } from "../src/causes/split";
import { fullSteps, isFull } from "../src/views/memory/budget";
import { random as seeded } from "./random";
import { lanes, span, traceOf } from "./world";

const sent = (at: number) => ({ name: "caesura.request_sent", at });
const chat = (id: string, start: number, end: number, handed: number | null, request = "r"): SpanEntry =>
  span("chat m", id, start, end, { attributes: { "caesura.request.id": request }, events: handed === null ? [] : [sent(handed)] });
const call = (id: string, start: number, end: number | null, more: Partial<SpanEntry> = {}): SpanEntry =>
  span("execute_tool search", id, start, end, { ...more, attributes: { "gen_ai.tool.name": "search", ...more.attributes } });
const pause = (at: number, seconds: number, more: Partial<PauseEntry> = {}): Entry =>
  ({ kind: "pause", request: "r-1", at, tool: "search", pause_seconds: seconds, outcome: "resumed", handling: "preserve", ...more });

/** A request from 0 to 20: the server until 1, its turn rendered until 1.5, in the engine from 2 to 19. */
const ENTRIES: Entry[] = [
  span("invoke_agent a", "run", 0, 20),
  lanes(
    ["r-1", "waiting", 2], ["r-1", "prefill", 4, 3, 0, 100], ["r-1", "decode", 5, 4, 0, 100], ["r-1", "paused", 7, 5, 0, 120],
    ["r-1", "waiting", 13, 5, 0, 150], ["r-1", "loading", 13.5, 5], ["r-1", "recompute", 14, 5, 0, 150],
    ["r-1", "decode", 15, 6, 0, 150], ["r-1", "ended", 19, 0, 0, 170],
  ),
  { kind: "wait", request: "r-1", since: 2, until: 4, steps: 10, lacked: { blocks: 5, tokens: 3 } },
  pause(7, 6),
  chat("1", 1, 7.25, 1.5), call("2", 6.5, 9), chat("3", 11, 19.5, 12),
];

const rowsOf = (trace: Trace, now = 100): Partial<Record<Key, number>> => {
  const account = accountOf(trace, trace.lanes[0], now);
  return Object.fromEntries(account.rows.map((row) => [row.key, row.seconds]));
};
const total = (of: Record<string, number>): number => Object.values(of).reduce((sum, one) => sum + one, 0);

describe("the account of a request", () => {
  const trace = traceOf(ENTRIES);

  it("has every second in one row, from the client's request to its answer", () => {
    const account = accountOf(trace, trace.lanes[0], 100);
    expect([account.from, account.until, account.open, account.exact]).toEqual([0, 20, false, true]);
    expect(rowsOf(trace)).toEqual({
      server: 1, rendering: 0.5, handover: 0.5,
      "waiting-blocks": 1, "waiting-tokens": expect.closeTo(0.6), "waiting-other": expect.closeTo(0.4), "waiting-step": 0.5,
      loading: 0.5, prefill: 1, recompute: 1, decode: 6,
      "paused-tool": 2, "paused-runtime": 3, "paused-step": 1,
      answering: 0.5, closing: 0.5,
    });
    expect(total(rowsOf(trace) as Record<string, number>)).toBeCloseTo(20, 9);
  });

  it("names the longest moment of each row, to which its link leads", () => {
    const row = accountOf(trace, trace.lanes[0], 100).rows.find((one) => one.key === "decode");
    expect(row).toMatchObject({ times: 2, longest: { from: 15, until: 19 } });
  });

  it("has what passed over HTTP before and after the run, where that is recorded", () => {
    const [run, ...rest] = ENTRIES as [SpanEntry, ...Entry[]];
    const served = traceOf([
      { ...run, attributes: { ...run.attributes, "gen_ai.response.id": "chatcmpl-1" } }, ...rest,
      { kind: "http", at: 20.25, seconds: 21, route: "/v1/chat/completions", status: 200, answer: "chatcmpl-1" },
      { kind: "http", at: 30, seconds: 29, route: "/v1/chat/completions", status: 200, answer: "chatcmpl-2" },
    ]);
    const account = accountOf(served, served.lanes[0], 100);
    expect([account.from, account.until]).toEqual([-0.75, 20.25]);
    expect(rowsOf(served)).toMatchObject({ received: 0.75, server: 1, closing: 0.5, sent: 0.25 });
    expect(total(rowsOf(served) as Record<string, number>)).toBeCloseTo(21, 9);
  });

  it("counts a pause whose blocks are taken as one", () => {
    const taken = traceOf([lanes(["r-1", "paused", 1, 5], ["r-1", "offloaded", 2, 3], ["r-1", "dropped", 3], ["r-1", "ended", 5]), pause(1, 4)]);
    expect(accountOf(taken, taken.lanes[0], 9).rows).toMatchObject([{ key: "paused-unseen", times: 1, seconds: 4, longest: { from: 1, until: 5 } }]);
  });

  it("is the engine's only where no span tells of the server", () => {
    const bare = traceOf(ENTRIES.filter((entry) => entry.kind !== "span"));
    const account = accountOf(bare, bare.lanes[0], 100);
    expect([account.from, account.until, account.served]).toEqual([2, 19, null]);
    expect(rowsOf(bare)["paused-unseen"]).toBe(6);
    expect(total(rowsOf(bare) as Record<string, number>)).toBeCloseTo(17, 9);
  });

  it("does not tell rendering from the way to the engine in a recording that lacks when turns were sent", () => {
    const old = traceOf(ENTRIES.map((entry) => (entry.kind === "span" ? { ...entry, events: [] } : entry)));
    expect(accountOf(old, old.lanes[0], 100).exact).toBe(false);
    expect(rowsOf(old)).toMatchObject({ rendering: 1, "paused-runtime": 4 });
    expect(total(rowsOf(old) as Record<string, number>)).toBeCloseTo(20, 9);
  });

  it("ends with the answer where the client runs the tool, and says how long its KV was kept", () => {
    const entries: Entry[] = [
      span("invoke_agent a", "run", 0, 8),
      lanes(["r-1", "waiting", 1], ["r-1", "decode", 2, 4, 0, 100], ["r-1", "paused", 7, 5, 0, 120], ["r-1", "ended", 30]),
      chat("1", 0.5, 7.5, 0.75),
    ];
    const followed = traceOf([...entries, pause(7, 23, { outcome: "followed", handling: "none" })]);
    expect(accountOf(followed, followed.lanes[0], 100)).toMatchObject({ from: 0, until: 8, open: false, kept: 22 });
    expect(rowsOf(followed)).toEqual({ server: 0.5, rendering: 0.25, handover: 0.25, "waiting-step": 1, decode: 5, answering: 0.5, closing: 0.5 });
    // Its pause has no record yet, or one that says no more than that it ended.
    const live = traceOf([entries[0], entries[2], lanes(["r-1", "waiting", 1], ["r-1", "decode", 2], ["r-1", "paused", 7]), { kind: "opening", request: "r-1", at: 7 }]);
    expect(accountOf(live, live.lanes[0], 50)).toMatchObject({ until: 8, open: false });
    expect(rowsOf(live, 50)["paused-unseen"]).toBeUndefined();
  });

  it("goes on until now while the request does", () => {
    const open = traceOf([span("invoke_agent a", "run", 0, null), lanes(["r-1", "waiting", 2])]);
    const account = accountOf(open, open.lanes[0], 9);
    expect([account.from, account.until, account.open]).toEqual([2, 9, true]);
    expect(rowsOf(open, 9)).toEqual({ "waiting-open": 7 });
  });

  it("adds up for any order of states, spans, waits and pauses", () => {
    for (let seed = 1; seed <= 200; seed++) {
      const next = seeded(seed);
      const random = traceOf(anything(next));
      const lane = random.lanes[0];
      const account = accountOf(random, lane, 60);
      const sum = account.rows.reduce((all, row) => all + row.seconds, 0);
      expect(sum, `seed ${seed}`).toBeCloseTo(account.until - account.from, 6);
      expect(account.rows.every((row) => row.seconds > 0), `seed ${seed}`).toBe(true);
    }
  });
});

/** A request that goes through states at random, with spans, waits and pauses that need not fit them. */
function anything(next: () => number): Entry[] {
  const rows: [string, string, number, number][] = [];
  const more: Entry[] = [];
  let at = 5 + next();
  const of = (names: string[]): string => names[Math.floor(next() * names.length)];
  for (let i = 0; i < 3 + next() * 12; i++) {
    const state = of(["waiting", "loading", "prefill", "recompute", "decode", "paused", "offloaded", "dropped"]);
    rows.push(["r-1", state, at, 1]);
    const seconds = next() * 2;
    if (state === "paused") {
      more.push(pause(at, seconds, { outcome: of(["resumed", "followed", "ended"]) }));
      if (next() < 0.8) more.push(call(`c${i}`, at - next() * 0.2, next() < 0.9 ? at + next() * seconds * 1.1 : null));
      if (next() < 0.8) more.push(chat(`t${i}`, at + seconds * next(), at + seconds + next(), next() < 0.5 ? null : at + seconds * next()));
    }
    if (state === "waiting" && next() < 0.6) {
      more.push({ kind: "wait", request: "r-1", since: at, until: at + seconds, steps: Math.floor(next() * 9), lacked: { blocks: Math.floor(next() * 4), line: Math.floor(next() * 4) } });
    }
    at += seconds;
  }
  if (next() < 0.7) rows.push(["r-1", "ended", at, 0]);
  const begun = next() * 6;
  return [
    span("invoke_agent a", "run", begun, next() < 0.7 ? at + next() : null), lanes(...rows),
    ...(next() < 0.8 ? [chat("first", begun + next() * (5 - Math.min(begun, 5)), rows[Math.floor(next() * rows.length)][2] + next(), next() < 0.5 ? null : 4 + next() * 3)] : []),
    ...more,
  ];
}

describe("a pause", () => {
  const splitting = (entries: Entry[], now = 100) => {
    const trace = traceOf([span("invoke_agent a", "run", 0, null), lanes(["r-1", "decode", 1], ["r-1", "paused", 10], ["r-1", "waiting", 20]), chat("1", 0, 10, 0.5), ...entries]);
    return { trace, split: splitOf(trace, trace.pauses[0], now) };
  };
  const shared = (entries: Entry[], now?: number) => {
    const { split } = splitting(entries, now);
    return Object.fromEntries(Object.entries(split.seconds).filter(([, seconds]) => seconds > 0)) as Partial<Record<Share, number>>;
  };

  it("is split into the tool, the runtime and the step that ran when the result came", () => {
    expect(shared([pause(10, 10), call("2", 11, 14), chat("3", 15, 30, 17)])).toEqual({ tool: 3, runtime: 4, step: 3 });
  });

  it("is split once where nothing can change it any more", () => {
    const splits = (end: number | null, handed: number | null = null) => {
      const trace = traceOf([
        span("invoke_agent a", "run", 0, end), lanes(["r-1", "decode", 1], ["r-1", "paused", 10], ["r-1", "waiting", 20]),
        chat("1", 0, 10, 0.5), pause(10, 10), call("2", 11, 14), chat("3", 15, 30, handed),
      ]);
      return splitOf(trace, trace.pauses[0], 100) === splitOf(trace, trace.pauses[0], 100);
    };
    expect([splits(40), splits(null, 17), splits(null)]).toEqual([true, true, false]);
  });

  it("counts tools that run at once only once, and those that ran before it not at all", () => {
    expect(shared([pause(10, 10), call("2", 9, 14), call("3", 12, 16), call("4", 8, 9.5), chat("5", 16, 30, 16)])).toEqual({ tool: 6, step: 4 });
  });

  it("tells a person from the tool by when the person was asked and answered", () => {
    const asked = call("2", 10, 18, {
      attributes: { "caesura.person.seconds": 2 },
      events: [{ name: "caesura.person.asked", at: 11 }, { name: "caesura.person.settled", at: 13 }],
    });
    expect(shared([pause(10, 10), asked, chat("3", 18, 30, 20)])).toEqual({ person: 2, tool: 6, runtime: 2 });
    expect(ownSeconds(asked)).toBe(6);
    expect(ownSeconds(call("2", 10, null))).toBeNull();
  });

  it("is the tool's while it is open and its call runs, or a person's", () => {
    const open: Entry = { kind: "opening", request: "r-1", at: 10, tool: "search" };
    expect(shared([open, call("2", 11, null)], 15)).toEqual({ runtime: 1, tool: 4 });
    expect(shared([{ ...open, person: true } as Entry, call("2", 11, null)], 15)).toEqual({ runtime: 1, person: 4 });
  });

  it("is not told where the client ran the tool", () => {
    expect(shared([pause(10, 10, { outcome: "followed" })])).toEqual({ unseen: 10 });
  });

  it("without a sent turn has the step's share in the runtime's", () => {
    const { split } = splitting([pause(10, 10), call("2", 11, 14), chat("3", 15, 30, null)]);
    expect([split.exact, split.seconds.runtime, split.seconds.step]).toEqual([false, 7, 0]);
  });

  it("has pieces without gaps, in time order", () => {
    const { trace } = splitting([pause(10, 10), call("2", 11, 14), call("3", 14.5, 15), chat("4", 15, 30, 17)]);
    const pieces = piecesOf(trace, trace.pauses[0], 100);
    expect(pieces.map((piece) => piece.share)).toEqual(["runtime", "tool", "runtime", "tool", "runtime", "step"]);
    expect([pieces[0].from, ...pieces.map((piece) => piece.until)]).toEqual([10, 11, 14, 14.5, 15, 17, 20]);
  });

  it("has its share in the percentiles of its tool, unless nothing is known of it", () => {
    const { trace } = splitting([pause(10, 10), call("2", 11, 14), chat("3", 15, 30, 17), { ...pause(40, 4), request: "elsewhere" } as Entry]);
    const { rows, pauses, exact } = sharesOf(trace, trace.pauses, 100);
    expect([pauses, exact]).toEqual([1, true]);
    expect(rows.map((row) => [row.share, row.p50, row.p99, row.part])).toEqual([["tool", 3, 3, 0.3], ["runtime", 4, 4, 0.4], ["step", 3, 3, 0.3]]);
  });
});

describe("the causes of a request", () => {
  const kindsOf = (entries: Entry[]) => {
    const trace = traceOf(entries);
    const ledger = ledgerOf(trace, trace.to);
    const request = [...ledger.ended, ...ledger.open].find((one) => one.lane.id === "r-1")!;
    return Object.fromEntries(causesOf(ledger.piecesOf(request, trace.to)).map((cause) => [cause.kind, cause.seconds]));
  };

  it("tell the tool's own time from that of the runtime and the running step, as the account does", () => {
    expect(kindsOf(ENTRIES)).toMatchObject({ tool: 2, runtime: 4, decode: 6 });
  });

  it("give a person what the call waited for one, in all rows of the pause", () => {
    const asked = call("2", 10, 18, { events: [{ name: "caesura.person.asked", at: 11 }, { name: "caesura.person.settled", at: 13 }] });
    const rows = lanes(["r-1", "decode", 1], ["r-1", "paused", 10], ["r-1", "dropped", 15], ["r-1", "waiting", 20], ["r-1", "ended", 21]);
    const entries = [span("invoke_agent a", "run", 0, 22), rows, pause(10, 10, { tool: "person:ask" }), chat("1", 0, 10, 0.5), chat("3", 19, 21, 20)];
    expect(kindsOf([...entries, asked])).toMatchObject({ person: 2, tool: 6, runtime: 2 });
    // An older recording has no more than that the pause was for a person.
    expect(kindsOf([...entries, { ...asked, events: [] }])).toMatchObject({ person: 8, runtime: 2 });
  });
});

describe("decoding", () => {
  const crowd = (from: number, count: number, seconds: number, running: number, more: Record<string, number> = {}): Entry => ({
    kind: "steps", at: Array.from({ length: count }, (_, i) => from + i * seconds),
    ...Object.fromEntries(Object.entries({ seconds, running, decode_tokens: running, ...more }).map(([name, value]) => [name, new Array<number>(count).fill(value)])),
  });

  it("is told by tokens, seconds for each, and what ran beside it", () => {
    const trace = traceOf([
      lanes(["r", "waiting", 0], ["r", "decode", 1, 1, 0, 100], ["r", "paused", 11, 1, 0, 140]),
      crowd(1, 40, 0.25, 60, { prefill_tokens: 45, recompute_tokens: 5, saved_blocks: 1, budget_tokens: 110 }),
    ]);
    const [stretch] = stretchesOf(trace, trace.lanes[0], 100);
    expect(stretch).toMatchObject({ tokens: 40, perToken: 0.25, beside: 59, steps: 40, prefillTokens: 1800, recomputeTokens: 200, copiedBlocks: 40, full: 40, stepSeconds: 0.25 });
    expect(reasonOf(stretch).replaceAll("\u202f", " ")).toBe(
      "59 others ran beside it, and its 40 steps also computed 1 800 prefill tokens, recomputed 200 tokens and copied 40 blocks. "
      + "A step took 250 ms on average, as is usual here with 60 requests. 40 of the steps used up their token budget.",
    );
  });

  it("is slower than usual where its steps took longer than others with as many requests", () => {
    const trace = traceOf([
      lanes(["r", "decode", 1, 1, 0, 100], ["r", "ended", 3, 0, 0, 110]),
      crowd(1, 10, 0.2, 4), crowd(3, 90, 0.1, 4), crowd(20, 20, 0.5, 30),
    ]);
    const [stretch] = stretchesOf(trace, trace.lanes[0], 100);
    expect(usualStep(trace.steps, 4)).toBeCloseTo(0.1);
    expect(usualStep(trace.steps, 30)).toBeCloseTo(0.5);
    expect(usualStep(trace.steps, 200)).toBeNull();
    expect(slowdown(stretch)).toBeCloseTo(2);
    expect(reasonOf(stretch)).toContain("2 times what is usual here with 4 requests (100 ms)");
  });

  it("that goes on has about a token a step", () => {
    const trace = traceOf([lanes(["r", "decode", 1, 1, 0, 100]), crowd(1, 10, 0.2, 1)]);
    expect(stretchesOf(trace, trace.lanes[0], 3)[0]).toMatchObject({ open: true, tokens: null, steps: 10, perToken: expect.closeTo(0.2), beside: 0 });
    expect(reasonOf(stretchesOf(trace, trace.lanes[0], 3)[0])).toContain("No other request ran beside it.");
  });

  it("is one stretch while it is not interrupted, and without steps tells its tokens only", () => {
    const trace = traceOf([lanes(["r", "decode", 1, 1, 0, 100], ["r", "decode", 2, 2, 0, 110], ["r", "waiting", 3, 0, 0, 120], ["r", "decode", 4, 2, 0, 120], ["r", "ended", 5, 0, 0, 125])]);
    const stretches = stretchesOf(trace, trace.lanes[0], 100);
    expect(stretches.map((one) => [one.tokens, one.perToken])).toEqual([[20, 0.1], [5, 0.2]]);
    expect(reasonOf(stretches[0])).toBe("");
  });
});

describe("who stood in the way", () => {
  const trace = traceOf([
    lanes(
      ["me", "waiting", 10], ["long", "decode", 0, 4], ["short", "prefill", 12, 2], ["short", "decode", 13, 2], ["short", "paused", 15, 2],
      ["loads", "loading", 9, 2], ["long", "ended", 30],
    ),
  ]);
  const of = (counts: (state: number) => boolean) => companions(trace, "me", 10, 20, counts).map((one) => [one.lane.id, one.seconds]);

  test("had a slot while it was computed or decoded", () => {
    expect(of(hasSlot)).toEqual([["long", 10], ["short", 3]]);
  });
  test("took the step's tokens while it was computed", () => {
    expect(of(prefills)).toEqual([["short", 1]]);
  });
  test("is asked for by what was lacked", () => {
    const wait = { kind: "wait" as const, request: "me", since: 10, until: 20, lacked: { tokens: 7, blocks: 2 } };
    expect(QUESTIONS[mainLack(wait)!]).toBe("Who took the tokens?");
    expect(mainLack({ ...wait, lacked: {} })).toBeNull();
  });
});

test("a step is cut short when it has used up what it may take", () => {
  const { steps } = traceOf([{ kind: "steps", at: [0, 1, 2, 3], decode_tokens: [4, 4, 4, 4], prefill_tokens: [12, 11, 0, 60], budget_tokens: [16, 16, 16, 0] }]);
  expect([0, 1, 2, 3].map((row) => isFull(steps, row))).toEqual([true, false, false, false]);
  expect(fullSteps(steps, 0, 4)).toBe(1);
});
