// @vitest-environment happy-dom
// An engine's death: what it ends, what goes on in the next engine, and that no figure counts the outage as work.
import { render } from "preact";
import { act } from "preact/test-utils";
import { describe, expect, test } from "vitest";
import { foldsOf } from "../src/app/state";
import { requestOf } from "../src/causes/figures";
import { servedOf } from "../src/causes/served";
import { ledgerOf } from "../src/causes/ledger";
import { slowedIn } from "../src/causes/slowed";
import { bestPace, toldOf } from "../src/causes/told";
import { LOST } from "../src/model/lane";
import type { Entry } from "../src/model/records";
import { without } from "../src/model/restarts";
import { Trace } from "../src/model/trace";
import { holdersOf } from "../src/views/memory/holders";
import { restAt, restOf } from "../src/views/memory/rests";
import { Deaths, Head } from "../src/views/overview/head";
import { MEASURES, percentilesOf } from "../src/views/overview/summary";
import { accountOf } from "../src/views/request/account";
import { figuresOf } from "../src/views/session/figures";
import { find, page } from "./mounted";
import { random } from "./random";
import { lanes, span, traceOf } from "./world";

const DIED = 10, BACK = 130;
const death = (state: string, seconds: number | null): Entry =>
  ({ kind: "restart", at: DIED, why: "it was killed", attempts: seconds === null ? 0 : 1, seconds, state });
const [down, back] = [death("down", null), death("restarted", BACK - DIED)];
const opening = (request: string, at: number): Entry => ({
  kind: "opening", request, session: request, tool: "search", person: false, at, context_tokens: 90, blocks: 6, predicted_seconds: 3,
});

/** `ran` decodes, `waits` is paused for its tool, `gone` is a client's; the first two go on in the next engine. */
const BEFORE: Entry[] = [
  lanes(["session-ran-1", "waiting", 0], ["session-ran-1", "prefill", 1, 9, 0, 40], ["session-ran-1", "decode", 2, 9, 0, 40],
    ["session-waits-1", "decode", 3, 6, 0, 80], ["gone", "waiting", 4], ["gone", "decode", 5, 4, 0, 20], ["session-waits-1", "paused", 7, 6, 0, 90]),
  opening("session-waits-1", 7),
  { kind: "steps", at: [1, 5, 9.5], seconds: [1, 1, 0.5], decode_tokens: [0, 2, 2], running_blocks: [9, 19, 13], paused_blocks: [0, 0, 6], free_blocks: [91, 81, 81] },
];
const AFTER: Entry[] = [
  { kind: "continued", request: "session-new", lost: "session-ran", at: 130.1 },
  lanes(["session-new-7", "waiting", 130.2], ["session-new-7", "prefill", 131, 12, 0, 60], ["session-new-7", "decode", 132, 12, 0, 60]),
  { kind: "continued", request: "session-back", lost: "session-waits", at: 140 },
  lanes(["session-back-8", "waiting", 140.5], ["session-back-8", "decode", 141, 7, 0, 99], ["session-new-7", "ended", 142, 0, 0, 80], ["session-back-8", "ended", 143, 0, 0, 110]),
  { kind: "session", request: "session-new-7", session: "session-new-7", at: 142, arrival: 130.2, given_tokens: 60, decoded_tokens: 20, calls: 0, outcome: "stop" },
];

test("an engine's death ends what was in it, when it died", () => {
  const trace = traceOf([...BEFORE, down]);
  expect(trace.lanes.map((lane) => [lane.id, lane.lost, lane.end])).toEqual([
    ["session-ran-1", true, DIED], ["session-waits-1", true, DIED], ["gone", true, DIED],
  ]);
  expect(trace.open).toBe(false);
  expect(trace.pauses.map((pause) => [pause.outcome, pause.seconds])).toEqual([["lost", 3]]);
  // An hour later nothing has grown.
  const figures = figuresOf(trace, 3600);
  expect(figures.map((one) => one.latency)).toEqual([10, 4, 6]);
  expect(Math.max(...figures.map((one) => one.seconds[LOST]))).toBe(0);
  expect(trace.restarts.down?.why).toBe("it was killed");
  trace.add([back]);
  expect(trace.restarts.down).toBeNull();
  expect(trace.restarts.outages(3600)).toEqual([{ from: DIED, to: BACK, server: "" }]);
});

test("what an older recording tells once, when the engine is back, ends the lanes of before and none of after", () => {
  const trace = traceOf([...BEFORE, lanes(["next", "waiting", 131]), { kind: "restart", at: DIED, why: "", attempts: 1, seconds: 120 }]);
  expect(trace.lanes.map((lane) => lane.end)).toEqual([DIED, DIED, DIED, null]);
  expect(trace.restarts.all[0].state).toBe("restarted");
});

test("a session that goes on in the next engine is one request, and its wait for that engine a cause of its own", () => {
  const trace = traceOf([...BEFORE, down, back, ...AFTER]);
  expect(trace.lanes.map((lane) => [lane.id, lane.lost, lane.end])).toEqual([
    ["session-ran-1", false, 142], ["session-waits-1", false, 143], ["gone", true, DIED],
  ]);
  // By the new id the same request is found, as its spans and clients name it.
  for (const id of ["session-new", "session-new-7"]) expect(trace.laneOf(id)?.id).toBe("session-ran-1");
  expect([...trace.sessions.keys()]).toEqual(["session-ran-1", "session-waits-1", "gone"]);
  const [ran, waits, gone] = trace.lanes.map((lane) => requestOf(trace, lane, 200));
  expect(ran.end! - ran.start).toBe(142);
  expect(ran.seconds[LOST]).toBeCloseTo(120.2, 9);
  // Its tool took that time, and the pause ends when its result was sent.
  expect(waits.seconds[LOST]).toBe(0);
  expect(trace.pausesOf("session-waits-1")[0].seconds).toBe(133);
  expect(gone.end).toBe(DIED);
  const ledger = ledgerOf(trace, 200);
  const told = toldOf(ran, trace, ledger, 200, bestPace(ledger.ended));
  expect(told.sentence).toContain("2 min 22 s: its engine died, and it took 2 min until it went on in the next one");
  const account = accountOf(trace, trace.lanes[0], 200);
  expect(account.rows.find((row) => row.key === "lost")?.seconds).toBeCloseTo(120.2, 9);
  expect(account.rows.reduce((sum, row) => sum + row.seconds, 0)).toBeCloseTo(142, 9);
});

test("the first cause of a stretch is the death, and no pause or decode of the dead", () => {
  const trace = traceOf([...BEFORE, down, back, ...AFTER]);
  const [first, ...others] = slowedIn(ledgerOf(trace, 200), trace.from, 200, 200);
  expect([first.kind, Math.round(first.seconds)]).toEqual(["tool", 134]);
  expect(others[0].kind).toBe("died");
  expect(others.find((one) => one.kind === "decode")!.seconds).toBeLessThan(35);
});

test("the times of those whom the death has hit are in the percentiles", () => {
  const trace = traceOf([...BEFORE, down, back, ...AFTER]);
  const end = MEASURES.find((one) => one.id === "end-to-end")!;
  const { p99, count } = percentilesOf(ledgerOf(trace, 200).endedIn(0, 200).map(end.of));
  expect(count).toBe(3);
  expect(p99).toBeGreaterThan(139);
});

test("a request that went on while its death was looked at is counted anew", () => {
  const trace = traceOf([...BEFORE, down, back]);
  trace.add([lanes(["other", "waiting", 138])]);
  expect(ledgerOf(trace, 139).endedIn(0, 200).length).toBe(3);
  trace.add(AFTER);
  const ended = ledgerOf(trace, 200).endedIn(0, 200).map((one) => [one.lane.id, one.end]);
  expect(ended).toEqual([["gone", DIED], ["session-ran-1", 142], ["session-waits-1", 143]]);
});

test("a request may lose one engine after another", () => {
  const trace = traceOf([...BEFORE, down, back, AFTER[0], AFTER[1], { kind: "restart", at: 133, why: "again", state: "down" },
    { kind: "continued", request: "session-third", lost: "session-new", at: 150 }, lanes(["session-third-9", "waiting", 151], ["session-third-9", "ended", 152])]);
  expect(trace.lanes[0].end).toBe(152);
  expect(requestOf(trace, trace.lanes[0], 200).seconds[LOST]).toBeCloseTo(120.2 + 18, 9);
  expect(trace.restarts.all.map((one) => one.lanes.length)).toEqual([3, 1]);
});

test("a request that was sent to a dead engine waits for the next one from then on", () => {
  const trace = traceOf([...BEFORE, down, back, { kind: "continued", request: "session-x", lost: "session-w", at: 130.5, sent: 50 },
    lanes(["session-x-4", "waiting", 131], ["session-x-4", "decode", 132], ["session-x-4", "ended", 133])]);
  const request = requestOf(trace, trace.laneOf("session-x")!, 200);
  expect([request.start, request.end, request.seconds[LOST], request.firstToken]).toEqual([50, 133, 81, 82]);
  expect(trace.restarts.all[0].lanes.length).toBe(3);
});

test("of one whose last records died with the engine it is known that it was there", () => {
  const trace = traceOf([...BEFORE, down, { kind: "continued", request: "session-x", lost: "session-w", at: 130.5, sent: 9 }]);
  expect(trace.restarts.all[0].lanes.map((lane) => lane.id)).toContain("session-w");
  expect(trace.laneOf("session-w")!.end).toBeNull();
});

test("the spans of a request that went on name it by its new id, and are found by the old one", () => {
  const turn = span("chat m", "c1", 1, 142, { attributes: { "caesura.request.id": "session-new" } });
  const trace = traceOf([...BEFORE, down, back, ...AFTER, turn, span("invoke_agent a", "run", 0.5, 143)]);
  const served = servedOf(trace, trace.lanes[0])!;
  expect([served.run.span.span, served.turns.map((one) => one.span)]).toEqual(["run", ["c1"]]);
});

test("the outage is not folded as idle", () => {
  const trace = traceOf([...BEFORE, down, back, lanes(["late", "waiting", 400], ["late", "ended", 401])]);
  expect(foldsOf(trace).folds.map(({ from, to }) => [from, to])).toEqual([[BACK, 400]]);
  // While it lasts it is not idle either.
  expect(foldsOf(traceOf([...BEFORE, down]), 500).folds).toEqual([]);
  expect(without([{ from: 0, to: 10 }, { from: 20, to: 30 }], [{ from: 4, to: 22 }])).toEqual([{ from: 0, to: 4 }, { from: 22, to: 30 }]);
});

test("a dead engine holds no blocks", () => {
  const trace = traceOf([...BEFORE, down, back]);
  const row = trace.steps.length - 1;
  expect(trace.steps.at[row]).toBe(DIED);
  const held = restAt(trace.steps, holdersOf(trace)!, row, 60)!;
  expect(["running_blocks", "paused_blocks", "running", "paused"].map((name) => restOf(trace.steps, name as "running", row, held))).toEqual([0, 0, 0, 0]);
});

test("the overview says when the engine died, and what became of its requests", async () => {
  const trace = traceOf([...BEFORE, down, back, ...AFTER]);
  const ledger = ledgerOf(trace, 200);
  const shown = { trace, ledger, ended: ledger.endedIn(0, 200), t0: 0, t1: 200, now: 200 };
  await act(() => render(<Deaths {...shown} />, page));
  expect(find("death").textContent).toMatch(/^The engine died at .* \(it was killed\), and it took work again after 2 min\./);
  expect(find("death").textContent).toContain("3 requests were in it: 2 went on in the next one, 1 ended with it.");
});

test.each([[true, "1 request ended in this recording, 1 went on"], [false, "1 request ended in this recording, 1 was cut off at its end"]])(
  "what is open at the end of a recording was cut off, unless it is live (%s)", async (live, said) => {
    const trace = traceOf([lanes(["x", "decode", 0], ["x", "ended", 2], ["y", "decode", 1])]);
    const ledger = ledgerOf(trace, 3);
    await act(() => render(<Head trace={trace} ledger={ledger} ended={ledger.endedIn(0, 9)} t0={0} t1={9} now={3} marked={false} live={live} />, page));
    expect(find("ov-count").textContent).toBe(said);
  },
);

describe("no sentence prints a share above 100 %", () => {
  const STATES = ["waiting", "prefill", "decode", "paused", "dropped", "recompute", "ended"];

  test.each(Array.from({ length: 60 }, (_, seed) => [seed]))("of a random recording, %i", (seed) => {
    const entries: Entry[] = [];
    const next = random(seed + 1);
    const pick = (below: number): number => Math.floor(next() * below);
    for (let request = 0; request < 4; request++) {
      let at = pick(5);
      for (let row = 0; row < 6; row++) {
        entries.push(lanes([`r${request}`, STATES[pick(STATES.length)], at, pick(9), 0, 10 * row]));
        at += pick(8) / 2;
      }
    }
    if (seed % 2) entries.push({ kind: "restart", at: 4 + pick(9), why: "", state: "down" });
    const trace = new Trace();
    trace.add(entries);
    const now = trace.to + pick(100);
    const ledger = ledgerOf(trace, now);
    for (const lane of trace.lanes) {
      const request = requestOf(trace, lane, now);
      // The whole may be told by a span that ended long before its lane.
      for (const whole of [undefined, 0.001, 5]) {
        const { sentence } = toldOf(request, trace, ledger, now, null, whole);
        for (const [, share] of sentence.matchAll(/([\d.\u202f]+)\s*%/g)) expect(Number(share.replace("\u202f", "")), sentence).toBeLessThanOrEqual(100);
      }
    }
  });
});
