// A small recording whose figures are easy to work out by hand.
import type { Entry, Recording, SpanEntry } from "../src/model/records";
import { Trace } from "../src/model/trace";

export const RECORDING: Recording = {
  id: "a", title: "A", source: "simulate", started: 0, ended: 20, live: false, entries: 0, content: false,
  about: { handling: "caesura", lanes: "exact" },
};

type Row = [request: string, state: string, at: number, blocks?: number, host?: number, tokens?: number];

/** One `lanes` entry of these rows. */
export function lanes(...rows: Row[]): Entry {
  return {
    kind: "lanes",
    request: rows.map((row) => row[0]), state: rows.map((row) => row[1]), at: rows.map((row) => row[2]),
    blocks: rows.map((row) => row[3] ?? 0), host: rows.map((row) => row[4] ?? 0), tokens: rows.map((row) => row[5] ?? 0),
  };
}

/** Two sessions: `one` pauses for a search from 3 to 8 and is preempted once, `two` just runs. */
export const ENTRIES: Entry[] = [
  lanes(
    ["one", "waiting", 0], ["one", "prefill", 1, 10, 0, 100], ["one", "decode", 2, 10, 0, 100],
    ["one", "paused", 3, 12, 0, 120], ["two", "waiting", 4], ["one", "dropped", 5, 2, 0, 120],
    ["two", "decode", 6, 5, 0, 60], ["one", "waiting", 8, 2, 0, 150], ["one", "recompute", 9, 15, 0, 150],
    ["one", "decode", 10, 15, 0, 150], ["one", "waiting", 11, 0, 0, 155], ["two", "ended", 12, 0, 0, 80],
    ["one", "decode", 13, 15, 0, 155], ["one", "ended", 14, 0, 0, 170],
  ),
  {
    kind: "opening", request: "one", session: "one", tool: "search", person: false, at: 3, context_tokens: 120,
    blocks: 12, predicted_seconds: 10, handling: "caesura", prices: { preserve: 120, discard: 30, swap: null },
  },
  {
    kind: "pause", request: "one", session: "one", arrival: 0, given_tokens: 100, decoded_tokens: 20, tool: "search",
    at: 3, context_tokens: 120, blocks: 12, predicted_seconds: 10, decisions: [[2, "discard", 10, "admit", null, null, null, "two"]],
    outcome: "resumed", handling: "discard", pause_seconds: 5, queue_seconds: 1, loaded_tokens: 0,
    recomputed_tokens: 100, cost: 50, queue_cost: 4, work_cost: 30, hindsight: { preserve: 60, discard: 30, swap: null }, regret: 20,
    wanted_seconds: 2.5, wanted_requests: 1, wanted_by: [["two", 2]],
  },
  { kind: "session", request: "two", session: "two", arrival: 4, given_tokens: 60, decoded_tokens: 20, at: 12, calls: 0, outcome: "stop" },
  { kind: "session", request: "one", session: "one", arrival: 0, given_tokens: 30, decoded_tokens: 16, at: 14, calls: 1, outcome: "stop" },
  {
    kind: "steps", at: [1, 2, 9, 20], seconds: [1, 1, 1, 0], decode_tokens: [0, 20, 0, 20], recompute_tokens: [0, 0, 100, 0],
    prefill_tokens: [100, 0, 30, 0], saved_blocks: [1, 2, 3, 4], running_blocks: [10, 12, 20, 0], paused_blocks: [0, 5, 0, 0],
    cached_blocks: [30, 20, 30, 50], free_blocks: [90, 83, 80, 100],
  },
];

export function traceOf(entries: Entry[]): Trace {
  const trace = new Trace();
  trace.add(entries);
  return trace;
}

/** A span of ours under the run "run" of trace "t"; its kind is its name's first word. */
export function span(name: string, id: string, start: number, end: number | null, more: Partial<SpanEntry> = {}): SpanEntry {
  const operation = name.split(" ", 1)[0];
  return {
    kind: "span", trace: "t", span: id, parent: operation === "invoke_agent" ? null : "run", name, start, end,
    status: "ok", ...more, attributes: { "gen_ai.operation.name": operation, ...more.attributes },
  };
}
