// The fold of entries: lanes, pauses, persons, spans, and what it tolerates.
import { describe, expect, it } from "vitest";
import { DECODE, ENDED, OFFLOADED, PAUSED, PERSON, STATES, WAITING } from "../src/model/lane";
import type { Entry } from "../src/model/records";
import { Trace } from "../src/model/trace";
import { sample } from "./sample";

const lanes = (...rows: [request: string, state: string, at: number, blocks?: number][]): Entry => ({
  kind: "lanes", request: rows.map((row) => row[0]), state: rows.map((row) => row[1]), at: rows.map((row) => row[2]),
  blocks: rows.map((row) => row[3] ?? 0), host: rows.map(() => 0), tokens: rows.map(() => 16),
});

function traceOf(...entries: Entry[]): Trace {
  const trace = new Trace();
  trace.add(entries);
  return trace;
}

describe("lanes", () => {
  it("hold each state until the next row", () => {
    const trace = traceOf(lanes(["a", "waiting", 1], ["a", "decode", 2, 5], ["a", "ended", 4]));
    const lane = trace.byRequest.get("a")!;
    expect([...lane.state.subarray(0, lane.length)]).toEqual([WAITING, DECODE, ENDED]);
    expect(lane.rowAt(0.5)).toBe(-1);
    expect(lane.rowAt(1)).toBe(0);
    expect(lane.rowAt(3.9)).toBe(1);
    expect(lane.until(1, 100)).toBe(4);
    expect(lane.end).toBe(4);
    expect([trace.from, trace.to]).toEqual([1, 4]);
  });

  it("go on until now while they have not ended", () => {
    const lane = traceOf(lanes(["a", "decode", 2])).byRequest.get("a")!;
    expect(lane.end).toBeNull();
    expect(lane.until(0, 10)).toBe(10);
  });

  it("put a late row where its time belongs", () => {
    const lane = traceOf(lanes(["a", "waiting", 1], ["a", "ended", 4]), lanes(["a", "decode", 2])).byRequest.get("a")!;
    expect([...lane.at.subarray(0, 3)]).toEqual([1, 2, 4]);
    expect(lane.state[1]).toBe(DECODE);
  });

  it("grow over many appends and stay what they were", () => {
    const trace = new Trace();
    for (let i = 0; i < 1000; i++) trace.add([lanes(["a", i % 2 ? "decode" : "paused", i, i])]);
    const lane = trace.byRequest.get("a")!;
    expect(lane.length).toBe(1000);
    expect([lane.at[999], lane.blocks[999], lane.state[998]]).toEqual([999, 999, PAUSED]);
    expect(trace.version).toBe(1000);
  });
});

describe("pauses", () => {
  const opening: Entry = { kind: "opening", request: "a", session: "s", at: 2, tool: "search", predicted_seconds: 1, handling: "caesura", prices: { preserve: 3, swap: null } };
  const end: Entry = { kind: "pause", request: "a", session: "s", at: 2, tool: "search", outcome: "resumed", handling: "swap", pause_seconds: 4, regret: 1.5 };

  it("are an opening and an end in one", () => {
    const trace = traceOf(lanes(["a", "paused", 2]), opening);
    const [pause] = trace.pauses;
    expect([pause.outcome, pause.seconds, pause.policy, pause.handling]).toEqual(["open", null, "caesura", null]);
    trace.add([end]);
    expect(trace.pauses).toEqual([pause]);
    expect([pause.outcome, pause.seconds, pause.handling, pause.regret]).toEqual(["resumed", 4, "swap", 1.5]);
    expect(pause.prices).toEqual({ preserve: 3, swap: null });
    expect(trace.to).toBe(6);
  });

  it("are known by their end alone in older records", () => {
    const trace = traceOf(end);
    expect([trace.pauses[0].inputs, trace.pauses[0].policy, trace.pauses[0].tool]).toEqual([null, null, "search"]);
  });

  it("stand in time order although they end in another", () => {
    const at = (time: number): Entry => ({ kind: "pause", request: `r${time}`, at: time, pause_seconds: 1 });
    expect(traceOf(at(5), at(1), at(3)).pauses.map((pause) => pause.at)).toEqual([1, 3, 5]);
  });

  it("name a tool alike, whether a person has to answer or not", () => {
    const asked = { ...opening, tool: "person:ask_user" } as Entry;
    const trace = traceOf(asked, { ...end, tool: "person:ask_user" } as Entry);
    expect([trace.pauses[0].tool, [...trace.tools]]).toEqual(["ask_user", ["ask_user"]]);
  });

  it("show a person's time, whichever record comes first", () => {
    const person: Entry = { ...opening, person: true } as Entry;
    const rows = lanes(["a", "decode", 1], ["a", "paused", 2], ["a", "offloaded", 3], ["a", "waiting", 6], ["a", "decode", 7], ["a", "paused", 8]);
    for (const entries of [[rows, person, end], [person, rows, end], [person, end, rows]]) {
      const lane = traceOf(...entries).byRequest.get("a")!;
      expect([...lane.state.subarray(0, lane.length)].map((code) => STATES[code])).toEqual(
        ["decode", "person", "person", "waiting", "decode", "paused"],
      );
      expect(lane.kv[2]).toBe(OFFLOADED);
      expect([lane.seen(PERSON), lane.seen(OFFLOADED)]).toEqual([true, expect.anything()]);
    }
  });
});

describe("sessions", () => {
  it("gather their requests once a record names them", () => {
    const trace = traceOf(
      lanes(["a", "decode", 1], ["b", "decode", 5]),
      { kind: "opening", request: "a", session: "s", at: 2 },
      { kind: "session", request: "b", session: "s", at: 9, outcome: "stop" },
    );
    expect(trace.sessions.get("s")!.lanes.map((lane) => lane.id)).toEqual(["a", "b"]);
    expect([...trace.sessions.keys()]).toEqual(["s"]);
    expect(trace.sessions.get("s")!.end?.outcome).toBe("stop");
  });
});

describe("spans", () => {
  const run: Entry = { kind: "span", trace: "t", span: "1", parent: null, name: "invoke_agent a", start: 1, end: null };
  const chat: Entry = {
    kind: "span", trace: "t", span: "2", parent: "1", name: "chat m", start: 2, end: 3,
    attributes: { "gen_ai.operation.name": "chat", "caesura.request.id": "chatcmpl-1" },
  };

  it("make a tree in any order, and later ones replace earlier ones", () => {
    const tool: Entry = { kind: "span", trace: "t", span: "3", parent: "1", name: "execute_tool x", start: 1.5, end: null };
    const trace = traceOf(chat, run, tool, { ...tool, end: 4, status: "error" } as Entry, { ...run, end: 5 } as Entry);
    expect(trace.runs).toHaveLength(1);
    expect(trace.runs[0].span.end).toBe(5);
    expect(trace.runs[0].turns).toEqual([chat]);
    expect(trace.runs[0].calls).toMatchObject([{ span: "3", end: 4, status: "error" }]);
  });

  it("find their lane by the client's id", () => {
    const trace = traceOf(lanes(["chatcmpl-1-8f3a", "decode", 1]), run, chat);
    expect(trace.laneOfSpan(trace.runs[0].turns[0])?.id).toBe("chatcmpl-1-8f3a");
    expect(trace.laneOf("chatcmpl")).toBeUndefined();
  });
});

describe("what is not known", () => {
  it("is left out: kinds, states, fields, broken entries", () => {
    const trace = traceOf(
      { kind: "novelty", at: 3 } as unknown as Entry,
      { kind: "lanes", request: ["a", "a"], state: ["teleported", "decode"], at: [1, 2] },
      { kind: "lanes" } as unknown as Entry,
      { kind: "steps", at: [1, 2], running: [3, 4] },
    );
    expect(trace.intervals).toBe(1);
    expect(trace.broken).toBe(1);
    expect([...trace.steps.get("running").subarray(0, 2)]).toEqual([3, 4]);
    expect(trace.steps.known.has("waiting")).toBe(false);
  });

  it("does not hide that entries were lost", () => {
    expect(traceOf({ kind: "gap", at: 4, lost: 7, why: "disk full" }).gaps).toEqual([{ kind: "gap", at: 4, lost: 7, why: "disk full" }]);
  });
});

describe("steps", () => {
  it("of several engines are put in time order", () => {
    const trace = traceOf({ kind: "steps", at: [1, 5], running: [1, 5] }, { kind: "steps", at: [2, 6], running: [2, 6] });
    expect([...trace.steps.at.subarray(0, 4)]).toEqual([1, 2, 5, 6]);
    expect([...trace.steps.get("running").subarray(0, 4)]).toEqual([1, 2, 5, 6]);
    expect(trace.steps.indexAt(5.5)).toBe(2);
  });
});

describe("a whole recording", () => {
  it("is the same in one piece and in many", () => {
    const entries = sample({ sessions: 30, seed: 3 });
    const whole = traceOf(...entries);
    const pieces = new Trace();
    for (const entry of entries) pieces.add([entry]);
    expect(pieces.intervals).toBe(whole.intervals);
    expect(pieces.lanes.map((lane) => [...lane.at.subarray(0, lane.length)])).toEqual(whole.lanes.map((lane) => [...lane.at.subarray(0, lane.length)]));
    expect(pieces.pauses.map((pause) => pause.end)).toEqual(whole.pauses.map((pause) => pause.end));
    expect(pieces.busy.idle(1)).toEqual(whole.busy.idle(1));
    expect(whole.lanes.every((lane) => lane.end !== null)).toBe(true);
  });
});
