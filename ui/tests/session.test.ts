// Transcripts, segments and the list of sessions, as plain data.
import { describe, expect, test } from "vitest";
import { artifactsIn, artifactsOf, messagesOf, readable, visible } from "../src/views/session/content";
import { differenceOf, followUp } from "../src/views/session/followup";
import { find, itemsOf, listed } from "../src/views/session/items";
import { segmentsOf } from "../src/views/session/segments";
import { lastPauseOf, transcriptOf } from "../src/views/session/transcript";
import { ENTRIES, lanes, span, traceOf } from "./world";

describe("follow-ups", () => {
  const told = (outcome: string, why: string, tokens = 0, field?: string) => followUp({
    "caesura.follow_up.outcome": outcome, "caesura.follow_up.why": why, "caesura.follow_up.spliced_tokens": tokens,
    ...(field ? { "caesura.follow_up.field": field } : {}),
  });
  test("a spliced one tells its tokens, a rendered one why", () => {
    expect(told("spliced", "unchanged", 1234)?.said).toBe("1\u202f234 spliced");
    expect(told("rendered", "changed")?.said).toBe("rendered again: changed");
    expect(told("rendered", "changed", 0, "messages[3].arguments")?.said)
      .toBe("rendered again: changed (messages[3].arguments)");
    expect(told("rendered", "changed")?.title).toContain("differs from what came back");
    expect(told("rendered", "a word from the future")?.title).toBe("The chat template wrote the whole history.");
    expect(followUp({})).toBeNull();
  });
  test("two excerpts are told by what they have in common at both ends", () => {
    const of = (kept?: string, sent?: string) => differenceOf({ "caesura.follow_up.kept": kept, "caesura.follow_up.sent": sent });
    expect(of("It is Monday. Go.", "It is Sunday. Go.")).toEqual({ before: "It is ", kept: "Mo", sent: "Su", behind: "nday. Go." });
    expect(of("aaa", "aaaa")).toEqual({ before: "aaa", kept: "", sent: "a", behind: "" });
    expect(of("", "new")).toEqual({ before: "", kept: "", sent: "new", behind: "" });
    // No character is cut in two.
    expect(of("\u{1F600}", "\u{1F601}")).toEqual({ before: "", kept: "\u{1F600}", sent: "\u{1F601}", behind: "" });
    expect(of("alone")).toBeNull();
    expect(differenceOf(undefined)).toBeNull();
  });
});

const text = (role: string, content: string) => ({ role, parts: [{ type: "text", content }] });
const json = JSON.stringify;

/** A run of two turns on request `one` of the small world, with a call and its result. */
const RUN = [
  span("invoke_agent helper", "run", 0, 14),
  span("chat m", "chat1", 0, 3, { attributes: {
    "caesura.request.id": "one",
    "gen_ai.input.messages": json([text("user", "earlier"), text("assistant", "hello"), text("user", "Find it.")]),
    "gen_ai.output.messages": json([{ role: "assistant", parts: [
      { type: "text", content: "I look." }, { type: "tool_call", id: "c1", name: "search", arguments: '{"q":1}' },
      { type: "tool_call", id: "c2", name: "client_tool", arguments: "{}" }] }]),
  } }),
  span("execute_tool search", "tool1", 2.9, 8, { attributes: {
    "gen_ai.tool.name": "search", "gen_ai.tool.call.id": "c1", "gen_ai.tool.call.result": "found /artifacts/map.png",
    "caesura.tool.artifacts": ["map.png", "b.wav"],
  } }),
  span("chat m", "chat2", 8.01, 14, { attributes: {
    "caesura.request.id": "one",
    "gen_ai.input.messages": json([{ role: "tool", parts: [{ type: "tool_call_response", id: "c1", response: "found" }] }]),
    "gen_ai.output.messages": json([text("assistant", "There.")]),
  } }),
];

describe("a transcript", () => {
  const trace = traceOf([...ENTRIES, ...RUN]);
  const [first, second] = transcriptOf(trace.runs[0], trace);
  test("has what is new to the model, and what came before apart", () => {
    expect(first.earlier.map((message) => message.parts[0].text)).toEqual(["earlier", "hello"]);
    expect(first.said.map((message) => message.parts[0].text)).toEqual(["Find it."]);
    expect(second.earlier).toEqual([]);
  });
  test("has calls with their results in the turn that made them", () => {
    expect(first.calls).toMatchObject([
      { name: "search", arguments: '{"q":1}', result: "found /artifacts/map.png", artifacts: ["map.png", "b.wav"] },
      { name: "client_tool", arguments: "{}", result: null, span: null },
    ]);
    expect(second.calls).toEqual([]);
    // The result is with the call; the second turn does not show it again.
    expect(second.said.flatMap((message) => message.parts)).toEqual([]);
  });
  test("has the pause before each turn that resumed", () => {
    expect(first.pause).toBeNull();
    expect(second.pause).toMatchObject({ request: "one", at: 3, handling: "discard", regret: 20 });
  });
  test("shows calls of a turn that is still being written", () => {
    const open = traceOf([
      span("invoke_agent helper", "run", 0, null), span("chat m", "chat1", 0, 3),
      span("execute_tool late", "tool1", 5, null, { attributes: { "gen_ai.tool.name": "late" } }),
    ]);
    const turns = transcriptOf(open.runs[0], open);
    expect(turns.map((turn) => [turn.span?.span ?? null, turn.calls.map((call) => call.name)])).toEqual([["chat1", []], [null, ["late"]]]);
  });
  test("ends with the pause that goes on", () => {
    const begun = ENTRIES.filter((entry) => entry.kind === "lanes" || entry.kind === "opening");
    const open = traceOf([...begun, span("invoke_agent helper", "run", 0, null), RUN[1]]);
    expect(lastPauseOf(open.runs[0], open)).toMatchObject({ request: "one", at: 3, outcome: "open" });
    expect(lastPauseOf(trace.runs[0], trace)).toBeNull();
  });
  test("ends with the pause for a client's tool", () => {
    const pause = { kind: "pause", request: "one", at: 3, tool: "weather", pause_seconds: 5, handling: "none" } as const;
    for (const outcome of ["followed", "ended"]) {
      const left = traceOf([ENTRIES[0], { ...pause, outcome }, span("invoke_agent helper", "run", 0, 3.01), RUN[1]]);
      expect(lastPauseOf(left.runs[0], left)).toMatchObject({ at: 3, outcome });
    }
  });
  test("names calls that could not be read", () => {
    const bad = traceOf([span("invoke_agent a", "run", 0, 2), span("chat m", "c", 0, 1, {
      events: [{ name: "caesura.call_malformed", at: 1, attributes: { "gen_ai.tool.name": "serch" } }] })]);
    expect(transcriptOf(bad.runs[0], bad)[0].malformed).toEqual(["serch"]);
  });
});

describe("content", () => {
  test("that is no JSON is text, and what is unknown is kept", () => {
    expect(messagesOf("plain")).toEqual([{ role: "", parts: [{ kind: "text", text: "plain", id: "", name: "" }] }]);
    expect(messagesOf(json([{ role: "x", parts: [{ type: "blob", size: 3 }] }]))[0].parts[0]).toMatchObject({ kind: "other", text: '{"type":"blob","size":3}' });
    expect(messagesOf(json([{ role: "assistant", parts: [{ type: "reasoning", content: "so" }] }]))[0].parts[0]).toMatchObject({ kind: "reasoning", text: "so" });
    expect(messagesOf(json([{ role: "user", content: "hi" }]))[0].parts[0].text).toBe("hi");
    expect(messagesOf(undefined)).toEqual([]);
    expect(messagesOf(json([3, null]))).toEqual([]);
  });
  test("refers to files by their names only", () => {
    expect(artifactsIn("see /artifacts/a-1.png, ![x](/artifacts/b.svg) and /artifacts/../etc. /artifacts/a-1.png.")).toEqual(["a-1.png", "b.svg"]);
    expect(artifactsOf(span("execute_tool t", "s", 0, 1))).toEqual([]);
  });
  test("cannot turn the order of what is shown", () => {
    expect(visible("a\u202egpj.exe\u0000\ttab\nline\r\n")).toBe("a⟨U+202E⟩gpj.exe⟨U+0000⟩\ttab\nline\n");
    expect(visible("שלום 👩‍👧")).toBe("שלום 👩‍👧");
  });
  test("of JSON is laid out, and anything else left alone", () => {
    expect(readable('{"query":"a,b","n":[1,2]}')).toBe('{"query": "a,b", "n": [1,2]}');
    expect(readable('{"x":"a\\",\\"b"}')).toBe('{"x": "a\\",\\"b"}');
    expect(readable("{broken")).toBe("{broken");
    expect(readable('"word"')).toBe('"word"');
    expect(readable(json({ long: "x".repeat(100) }))).toContain("\n");
  });
});

test("a request without spans is told as segments and pauses", () => {
  const trace = traceOf(ENTRIES);
  const segments = segmentsOf(trace.byRequest.get("one")!, trace, 20);
  expect(segments.map((one) => [one.kind, one.from, one.to, one.tokensFrom, one.tokensTo])).toEqual([
    ["segment", 0, 3, 0, 120], ["pause", 3, 8, 120, 150], ["segment", 8, 14, 150, 170],
  ]);
  expect(segments[1].pause).toMatchObject({ tool: "search", regret: 20 });
  expect(segments.every((one) => !one.open)).toBe(true);
});

describe("the list", () => {
  const conversation = { attributes: { "gen_ai.conversation.id": "talk" } };
  const trace = traceOf([
    ...ENTRIES, { ...RUN[0], attributes: { ...RUN[0].attributes, ...conversation.attributes } }, ...RUN.slice(1),
    span("invoke_agent lonely", "run2", 30, 31, { status: "error" }),
  ]);
  const items = itemsOf(trace, 40);
  test("holds conversations, runs alone, and sessions without runs", () => {
    expect(items.map((item) => [item.id, item.runs.length, item.sessions.map((one) => one.id)])).toEqual([
      ["talk", 1, ["one"]], ["two", 0, ["two"]], ["t/run2", 1, []],
    ]);
    expect(items[0]).toMatchObject({ start: 0, end: 14, duration: 14, tokens: 170, calls: 1, regret: 20, errors: 0 });
    expect(items[2]).toMatchObject({ errors: 1, regret: null, tokens: 0 });
  });
  test("calls a conversation by what was asked, and finds it by that", () => {
    expect(items.map((item) => item.title)).toEqual(["Find it.", "", ""]);
    expect(listed(items, "find it", "start", true).map((item) => item.id)).toEqual(["talk"]);
  });
  test("finds by any of the ids", () => {
    for (const id of ["talk", "one", "t/run"]) expect(find(items, id)?.id, id).toBe("talk");
    expect(find(items, "nobody")).toBeUndefined();
  });
  test("is searched by ids and tools, and sorted", () => {
    const ids = (...found: Parameters<typeof listed>) => listed(...found).map((item) => item.id);
    expect(ids(items, "SEARCH", "start", true)).toEqual(["talk"]);
    expect(ids(items, "search lonely", "start", true)).toEqual([]);
    expect(ids(items, "", "duration", false)).toEqual(["talk", "two", "t/run2"]);
    expect(ids(items, "", "errors", false)[0]).toBe("t/run2");
  });
  test("counts what goes on until now", () => {
    const open = itemsOf(traceOf([lanes(["r", "waiting", 3])]), 10);
    expect(open).toMatchObject([{ id: "r", end: null, duration: 7 }]);
  });
});
