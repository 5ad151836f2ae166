// What failed is put together by what it has in common, and leads to the requests in which it was.
import { describe, expect, test } from "vitest";
import { failingIn, patternOf, refusedAs, spread } from "../src/model/failing";
import type { Entry, SpanEntry } from "../src/model/records";
import { loopsOf, resultTokensOf } from "../src/model/loops";
import { listed } from "../src/views/errors/view";
import { NO_MORE, choicesOf, passingMore } from "../src/views/timeline/rows/filter";
import { itemsOf } from "../src/views/session/items";
import { lanes, span, traceOf } from "./world";

const call = (id: string, start: number, more: Partial<SpanEntry> = {}): SpanEntry =>
  span("execute_tool search", id, start, start + 1, { ...more, attributes: { "gen_ai.tool.name": "search", ...more.attributes } });
const failed = (id: string, start: number, message: string): SpanEntry =>
  call(id, start, { status: "error", attributes: { "error.type": "failed", "gen_ai.tool.call.result": `error: ${message}\nand more` } });

const ENTRIES: Entry[] = [
  lanes(["q-1", "waiting", 0], ["q-1", "decode", 1], ["q-1", "ended", 30], ["other", "decode", 0], ["other", "ended", 30]),
  span("invoke_agent a", "run", 0, 30, { attributes: { "caesura.tenant": "ann" } }),
  span("chat m", "c", 0, 1, { attributes: { "caesura.request.id": "q" } }),
  failed("t1", 2, "HTTP 503 from upstream search-17 after 1.5 s"),
  failed("t2", 12, "HTTP 503 from upstream search-4 after 20 s"),
  failed("t3", 22, "no such index: \"cats\""),
  { kind: "http", at: 5, route: "/v1/chat/completions", status: 404, code: "model_not_found", count: 3 },
  { kind: "http", at: 9, route: "/v1/chat/completions", status: 404, code: "session_not_found", tenant: "bob", request_id: "mine-77" },
  { kind: "http", at: 9, route: "/v1/chat/completions", status: 200 },
  { kind: "restart", at: 25, why: "signal 9 (pid 4711)", attempts: 1, seconds: 3, state: "restarted" },
];

describe("failures", () => {
  const trace = traceOf(ENTRIES);
  const rows = failingIn(trace, 0, 40);

  test("that differ in numbers and quoted texts alone are one", () => {
    expect(rows.map(({ kind, code, pattern, where, tenant, times, first, last }) => [kind, code, pattern, where, tenant, times, first, last])).toEqual([
      ["404 not there", "model_not_found", "", "/v1/chat/completions", "", 3, 5, 5],
      ["failed", "", "HTTP # from upstream search-# after # s", "search", "ann", 2, 3, 13],
      ["engine died", "", "signal # (pid #)", "", "", 1, 25, 25],
      ["failed", "", "no such index: “…”", "search", "ann", 1, 23, 23],
      ["404 not there", "session_not_found", "", "/v1/chat/completions", "bob", 1, 9, 9],
    ]);
  });

  test("of a stretch are those that were in it", () => {
    expect(failingIn(trace, 10, 20).map((row) => [row.kind, row.times])).toEqual([["failed", 1]]);
    expect(spread(rows[1].all, 0, 40, 4)).toEqual([1, 1, 0, 0]);
  });

  test("that were refused before a run are found by their ids", () => {
    expect(refusedAs(trace, "MINE-7")?.code).toBe("session_not_found");
    expect(refusedAs(trace, "min")).toBe(undefined);
    expect(refusedAs(trace, "q-1x")).toBe(undefined);
  });

  test("lead to the requests in which they were", () => {
    const passes = passingMore(trace, { ...NO_MORE, failure: rows[1].id }, 40);
    expect(trace.lanes.filter(passes).map((lane) => lane.id)).toEqual(["q-1"]);
    expect(trace.lanes.filter(passingMore(trace, { ...NO_MORE, failure: "none" }, 40))).toEqual([]);
    expect(choicesOf(trace).errors).toEqual(["failed"]);
  });

  test("are searched by all that they have in common, and sorted by any column", () => {
    expect(listed(rows, "search 503", "times", true)).toEqual([]);
    expect(listed(rows, "ann UPSTREAM", "times", true).length).toBe(1);
    expect(listed(rows, "mine-77", "times", true).map((row) => row.code)).toEqual(["session_not_found"]);
    expect(listed(rows, "", "last", true)[0].kind).toBe("engine died");
    expect(listed(rows, "", "first", false)[0].first).toBe(3);
  });

  test("are told once where a run's answer was an error too", () => {
    const answered = { "gen_ai.response.id": "chatcmpl-1", "error.type": "cancelled" };
    const left = traceOf([
      span("invoke_agent a", "run", 0, 3, { status: "error", attributes: answered }),
      { kind: "http", at: 3, route: "/v1/chat/completions", status: 499, answer: "chatcmpl-1" },
      { kind: "http", at: 4, route: "/v1/chat/completions", status: 499, answer: "chatcmpl-2" },
    ]);
    expect(failingIn(left, 0, 9).map((row) => [row.kind, row.times])).toEqual([["499 client left", 1], ["client left", 1]]);
  });
});

test("a pattern is without ids, numbers and quoted texts, and not too long", () => {
  expect(patternOf("run 3f2a9c41-77aa-4b21 of 12:30:01 can't  read 'a b'\n0x7ffe")).toBe("run # of # can't read “…” #");
  expect(patternOf("x ".repeat(500)).length).toBe(140);
});

const paused = (at: number, decoded: number, given: number): Entry => ({
  kind: "pause", request: "q-1", session: "q-1", at, tool: "search", outcome: "resumed", handling: "preserve",
  pause_seconds: 1, queue_seconds: 0, decoded_tokens: decoded, given_tokens: given,
});
const looping = (digests: (string | undefined)[]): Entry[] => [
  ...ENTRIES.slice(0, 3),
  ...digests.map((digest, i) => call(`t${i}`, 2 + 3 * i, digest === undefined ? {} : { attributes: { "caesura.tool.call_digest": digest } })),
  ...digests.map((_, i) => paused(2 + 3 * i, 10 + i, 100 + i)),
  { kind: "session", request: "q-1", session: "q-1", at: 30, given_tokens: 500, decoded_tokens: 7, calls: digests.length, outcome: "stop" },
];

describe("a session that goes round in circles", () => {
  test("is marked by three equal calls, and what the later ones took is counted", () => {
    const trace = traceOf(looping(["a", "b", "a", "a"]));
    // Decoded for the third and the fourth call, and given by their results: 12 + 103 and 13 + 500.
    expect(loopsOf(trace, trace.runs, trace.pauses)).toEqual([{ tool: "search", times: 3, tokens: 12 + 103 + 13 + 500 }]);
    const [item] = itemsOf(trace, 40).filter((one) => one.runs.length);
    expect([item.looped, item.loops.length]).toEqual([628, 1]);
  });

  test("is none with two equal calls, with other arguments, or where nothing tells them", () => {
    for (const digests of [["a", "a"], ["a", "b", "c"], [undefined, undefined, undefined]]) {
      const trace = traceOf(looping(digests));
      expect(loopsOf(trace, trace.runs, trace.pauses), String(digests)).toEqual([]);
    }
  });

  test("is known by recorded arguments where there is no digest", () => {
    const given = { attributes: { "gen_ai.tool.call.arguments": '{"q": 1}' } };
    const trace = traceOf([...ENTRIES.slice(0, 3), ...[0, 1, 2].map((i) => call(`t${i}`, 2 + i, given))]);
    expect(loopsOf(trace, trace.runs, [])).toEqual([{ tool: "search", times: 3, tokens: 0 }]);
  });
});

test("a pause's result is what the next segment was given", () => {
  const trace = traceOf(looping(["a", "b"]));
  expect(trace.pauses.map((pause) => resultTokensOf(trace, pause))).toEqual([101, 500]);
});
