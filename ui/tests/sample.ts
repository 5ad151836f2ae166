// A made-up recording with every kind of entry, the same for the same seed: for tests and for trying out the page.
import type { Entry, LanesEntry, Prediction, Recording, SpanEntry, WaitEntry } from "../src/model/records";
import { exponential, lognormal, random } from "./random";
import { stepsOf } from "./sample-steps";

export interface SampleOptions {
  sessions?: number;
  seed?: number;
  /** When it begins, in seconds. */
  start?: number;
  /** Steps of the engine to write; they are spread evenly. */
  steps?: number;
  /** Whether spans carry messages, arguments and results. */
  content?: boolean;
}

/** A row of a lane: request, state, time, device blocks, host blocks, tokens. */
export type SampleRow = [request: string, state: string, at: number, blocks: number, host: number, tokens: number];

const TOOLS = [
  { name: "calculator", median: 0.02, spread: 0.5 },
  { name: "search", median: 1.2, spread: 0.8 },
  { name: "environment", median: 0.4, spread: 0.6 },
  { name: "make_picture", median: 12, spread: 0.5 },
  { name: "ask_person", median: 70, spread: 1.0, person: true },
] as const;
const BLOCK = 16;

interface World {
  next: () => number;
  rows: SampleRow[];
  timed: { at: number; entry: Entry }[];
  content: boolean;
}

export const SAMPLE_RECORDING: Recording = {
  id: "sample", title: "Sample", source: "simulate", started: 0, ended: null, live: false, entries: 0, content: true,
  about: { model: "sample", handling: "caesura", block_size: BLOCK, total_blocks: 6000, host_blocks: 12000, lanes: "exact" },
};

/** Entries in the order in which they would have been written. */
export function sample(options: SampleOptions = {}): Entry[] {
  const { sessions = 40, seed = 1, start = 0, steps = sessions * 25, content = true } = options;
  const world: World = { next: random(seed), rows: [], timed: [], content };
  let arrival = start;
  for (let i = 0; i < sessions; i++) {
    arrival += exponential(world.next, 1.5);
    if (world.next() < 0.01) arrival += 90; // nobody comes for a while
    session(world, i, arrival);
  }
  world.rows.sort((a, b) => a[2] - b[2]);
  const timed = [...world.timed, ...lanes(world.rows), ...stepsOf(world.rows, steps, world.next)];
  timed.sort((a, b) => a.at - b.at);
  return timed.map((one, i) => ({ ...one.entry, id: i + 1 }));
}

function session(world: World, index: number, arrival: number): void {
  const { next } = world;
  const id = `req-${String(index).padStart(4, "0")}-${Math.floor(next() * 0xffff).toString(16)}`;
  let tokens = 200 + Math.floor(exponential(next, 900));
  let at = queue(world, id, arrival, tokens, "fresh");
  const trace = id.padEnd(32, "0");
  const run: SpanEntry = {
    kind: "span", trace, span: "run", parent: null, name: "invoke_agent assistant", start: arrival, end: null,
    attributes: { "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "assistant", "gen_ai.conversation.id": `conv-${index >> 1}` },
  };
  world.timed.push({ at: arrival, entry: run });
  at = compute(world, id, at, "prefill", tokens, tokens / 9000);
  const calls = Math.floor(exponential(next, 3.2));
  for (let call = 0; call < calls; call++) {
    forecast(world, id, call ? at : arrival, call, calls - call);
    const begun = at;
    const decoded = 20 + Math.floor(exponential(next, 90));
    tokens += decoded;
    at = compute(world, id, at, "decode", tokens, decoded * 0.021);
    chat(world, id, call, begun, at, decoded, tokens);
    [at, tokens] = pause(world, id, at, tokens, call, arrival);
  }
  forecast(world, id, calls ? at : arrival, calls, 0);
  const begun = at;
  tokens += 120;
  at = compute(world, id, at, "decode", tokens, 2.4);
  chat(world, id, calls, begun, at, 120, tokens);
  row(world, id, "ended", at, 0, 0, tokens);
  world.timed.push(
    { at, entry: { ...run, end: at, status: "ok", attributes: { ...run.attributes, "caesura.turns": calls + 1, "caesura.calls": calls } } },
    { at, entry: { kind: "session", request: id, session: id, arrival, given_tokens: 200, decoded_tokens: 120, at, calls, most_tokens: 512, outcome: "stop" } },
  );
}

/** What two predictors expect of a segment: one from the mean of all sessions, one with an error. */
function forecast(world: World, id: string, at: number, calls: number, left: number): void {
  const { next } = world;
  const table: Prediction = {
    predictor: "history", decode_tokens: 80, calls_left: 3.2, ends_now: 0.24, ends_within_3: 0.62, pause_seconds: 3, long_pause: 0.1,
  };
  const seen = left * lognormal(next, 1, 0.4);
  const model: Prediction = {
    predictor: "hazard", decode_tokens: 50 + 60 * next(), decode_quantiles: [15, 70, 200], calls_left: seen,
    ends_now: Math.exp(-seen * 1.5), ends_within_3: 1 / (1 + Math.exp(seen - 3.5)), pause_seconds: lognormal(next, 2, 0.8),
    long_pause: 0.2 * next(),
  };
  world.timed.push({ at, entry: { kind: "forecast", request: id, session: id, at, calls, features: { tool: calls ? "search" : "" }, predictions: [table, model] } });
}

function row(world: World, id: string, state: string, at: number, blocks: number, host: number, tokens: number): void {
  world.rows.push([id, state, at, blocks, host, tokens]);
}

function compute(world: World, id: string, at: number, state: string, tokens: number, seconds: number): number {
  row(world, id, state, at, Math.ceil(tokens / BLOCK), 0, tokens);
  return at + seconds;
}

function queue(world: World, id: string, at: number, tokens: number, after: string, host = 0): number {
  const { next } = world;
  row(world, id, "waiting", at, 0, host, tokens);
  const until = at + exponential(next, 0.6);
  const steps = Math.floor((until - at) / 0.03);
  if (steps < 2) return until;
  const blocks = Math.floor(steps * next());
  const lacked: WaitEntry["lacked"] = {};
  if (blocks) lacked.blocks = blocks;
  if (steps > blocks) lacked[next() < 0.5 ? "slots" : "tokens"] = steps - blocks;
  const entry: Entry = {
    kind: "wait", request: id, since: at, until, steps, lacked, needed_blocks: Math.ceil(tokens / BLOCK),
    free_blocks: Math.floor(next() * 40), overtaken: Math.floor(next() * 4), after,
  };
  world.timed.push({ at: until, entry });
  return until;
}

function chat(world: World, id: string, turn: number, start: number, end: number, decoded: number, tokens: number): void {
  const messages = (role: string, text: string): string => JSON.stringify([{ role, parts: [{ type: "text", content: text }] }]);
  world.timed.push({ at: end, entry: {
    kind: "span", trace: id.padEnd(32, "0"), span: `chat${turn}`, parent: "run", name: "chat sample", start, end, status: "ok",
    attributes: {
      "gen_ai.operation.name": "chat", "caesura.request.id": id.replace(/-[^-]*$/, ""), "gen_ai.usage.output_tokens": decoded,
      "caesura.appended_tokens": tokens - decoded, "gen_ai.usage.cache_read.input_tokens": turn ? tokens - decoded : 0,
      "gen_ai.response.time_to_first_chunk": 0.05,
      ...(world.content ? {
        "gen_ai.input.messages": messages(turn ? "tool" : "user", turn ? "The result." : "What is the tallest tree?"),
        "gen_ai.output.messages": messages("assistant", "Let me look that up."),
      } : {}),
    },
  } });
}

/** A pause with its decisions, tool call and return; the time and context with which it runs on. */
function pause(world: World, id: string, at: number, tokens: number, call: number, arrival: number): [number, number] {
  const { next } = world;
  const tool = TOOLS[Math.floor(next() * (next() < 0.5 ? 3 : TOOLS.length))];
  const seconds = lognormal(next, tool.median, tool.spread);
  const predicted = lognormal(next, tool.median, tool.spread / 2);
  const blocks = Math.ceil(tokens / BLOCK);
  const open = seconds > 500;
  const price = (time: number): { preserve: number; discard: number; swap: number | null } => ({
    preserve: blocks * time, discard: blocks * (0.15 + tokens / 6000), swap: blocks > 40 ? blocks * (0.1 + blocks / 900) : null,
  });
  const prices = price(predicted);
  const hindsight = price(seconds);
  const person = "person" in tool;
  world.timed.push({ at, entry: {
    kind: "opening", request: id, session: id, tool: tool.name, person, at, context_tokens: tokens, blocks,
    predicted_seconds: predicted, deadline_seconds: 600, handling: "caesura", prices,
    inputs: {
      elapsed: 0, remaining: predicted, resident: blocks, free_to_release: Math.floor(blocks / 3), uncopied: blocks - Math.floor(blocks / 3),
      hosted: 0, missing: 0, block_size: BLOCK, total_blocks: 6000, free_blocks: Math.floor(next() * 900), host_free: 9000,
      running_tokens: 12 + Math.floor(next() * 30), running_context: 24000, link_blocks: 40, swap_pays: prices.swap !== null, step_seconds: 0.021,
    },
  } });
  const costs = Object.values(prices).filter((value) => value !== null);
  const best = (Object.keys(prices) as (keyof typeof prices)[]).find((key) => prices[key] === Math.min(...costs)) ?? "preserve";
  const released = best !== "preserve" && seconds > 0.3 ? 0.2 + next() * 0.1 : Infinity;
  row(world, id, "paused", at, blocks, 0, tokens);
  const swapped = best === "swap" && released < seconds;
  const dropped = best === "discard" && released < seconds;
  if (swapped) row(world, id, "offloaded", at + released, 0, blocks - 1, tokens);
  if (dropped) row(world, id, "dropped", at + released, Math.floor(blocks / 4), 0, tokens);
  const handling = swapped ? "swap" : dropped ? "discard" : "preserve";
  span(world, id, tool.name, call, at, at + seconds);
  if (open) return [at + seconds, tokens];
  const back = at + seconds;
  const given = 30 + Math.floor(exponential(next, 200));
  const running = queue(world, id, back, tokens + given, "tool", swapped ? blocks - 1 : 0);
  let free = running;
  if (swapped) free = compute(world, id, running, "loading", tokens + given, 0.05 + blocks / 4000);
  if (dropped) free = compute(world, id, running, "recompute", tokens, tokens / 9000);
  const ready = compute(world, id, free, "prefill", tokens + given, given / 9000 + 0.02);
  const cost = hindsight[handling] ?? 0;
  const least = Math.min(...Object.values(hindsight).filter((value) => value !== null));
  const wanted = blocks % 3 ? 0.6 * seconds : 0; // of the pause; nobody lacks blocks while it queues
  const idle = !wanted && handling === "preserve";
  world.timed.push({ at: running, entry: {
    kind: "pause", request: id, session: id, arrival, given_tokens: given, decoded_tokens: 50, tool: tool.name, at, context_tokens: tokens,
    blocks, predicted_seconds: predicted, prices, outcome: "resumed", handling,
    decisions: handling === "preserve" ? [] : [[released, handling, blocks - 1, next() < 0.5 ? "decided" : "running"]],
    pause_seconds: seconds, queue_seconds: running - back, loaded_tokens: swapped ? (blocks - 1) * BLOCK : 0,
    recomputed_tokens: dropped ? tokens - Math.floor(blocks / 4) * BLOCK : 0, cost: idle ? 0 : cost,
    queue_cost: 0, work_cost: handling === "preserve" ? 0 : cost,
    hindsight: idle ? null : hindsight, regret: idle ? null : cost - least,
    wanted_seconds: wanted, wanted_requests: wanted ? 1 : 0, wanted_by: wanted ? [["r1", wanted]] : [],
  } });
  return [ready, tokens + given];
}

function span(world: World, id: string, tool: string, call: number, start: number, end: number): void {
  const failed = world.next() < 0.04;
  const open: SpanEntry = {
    kind: "span", trace: id.padEnd(32, "0"), span: `tool${call}`, parent: "run", name: `execute_tool ${tool}`, start, end: null,
    attributes: {
      "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool, "gen_ai.tool.call.id": `call-${call}`,
      ...(world.content ? { "gen_ai.tool.call.arguments": JSON.stringify({ query: "tallest tree <b>now</b>" }) } : {}),
    },
  };
  const result = failed ? { "error.type": "timeout" } : world.content ? { "gen_ai.tool.call.result": "<img src=x onerror=alert(1)> 115.9 m" } : {};
  world.timed.push(
    { at: start, entry: open },
    { at: end, entry: { ...open, end, status: failed ? "error" : "ok", message: failed ? "timed out" : "", attributes: { ...open.attributes, ...result } } },
  );
}

/** Rows in time order as `lanes` entries of up to 64. */
function* lanes(rows: SampleRow[]): Generator<{ at: number; entry: LanesEntry }> {
  for (let i = 0; i < rows.length; i += 64) {
    const batch = rows.slice(i, i + 64);
    const [request, state, at, blocks, host, tokens] = ([0, 1, 2, 3, 4, 5] as const).map((k) => batch.map((one) => one[k]));
    yield { at: batch[batch.length - 1][2], entry: { kind: "lanes", request, state, at, blocks, host, tokens } as LanesEntry };
  }
}
