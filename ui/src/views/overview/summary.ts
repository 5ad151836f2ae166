// The figures of a window: percentiles over the requests that ended in it, tokens, answers and refusals.
import { WAITING } from "../../model/lane";
import type { HttpEntry } from "../../model/records";
import type { Run } from "../../model/spans";
import type { Steps } from "../../model/steps";
import type { Trace } from "../../model/trace";
import { firstFrom } from "../../charts/downsample";
import { quantile, sorted } from "../../charts/stats";
import { type Request, lengthOf, perToken } from "../../causes/figures";

/** A figure of requests, in seconds; null where a request does not have it. */
export interface Measure {
  id: string;
  name: string;
  meaning: string;
  of: (request: Request) => number | null;
}

export const MEASURES: readonly Measure[] = [
  { id: "first-token", name: "First token", of: (request) => request.firstToken,
    meaning: "TTFT by the engine: from a request's arrival there until its first token was there" },
  { id: "per-token", name: "Per token", of: perToken,
    meaning: "Time per output token: the time that a request decoded, divided by the tokens that it decoded" },
  { id: "end-to-end", name: "End to end", of: (request) => lengthOf(request, request.start),
    meaning: "From a request's arrival in the engine until its answer was over, tools and people included" },
  { id: "engine", name: "Without tools", of: (request) => request.engine,
    meaning: "End to end, less the time for which tools and people paused the request" },
  { id: "queueing", name: "Queueing", of: (request) => request.seconds[WAITING],
    meaning: "All of a request's time in the queue: when it was new, after its tools, and after preemptions" },
];

/** Percentiles of a sample; NaN of nothing. */
export interface Percentiles {
  count: number;
  p50: number;
  p95: number;
  p99: number;
}

export function percentilesOf(values: readonly (number | null)[]): Percentiles {
  const ascending = sorted(values.filter((value) => value !== null));
  const [p50, p95, p99] = [0.5, 0.95, 0.99].map((share) => quantile(ascending, share));
  return { count: ascending.length, p50, p95, p99 };
}

/** Return what clients waited for the first output of each run that ended in [from, until), in seconds. */
export function firstOutputs(runs: readonly Run[], from: number, until: number): number[] {
  const found: number[] = [];
  for (const { span, turns } of runs) {
    if (span.end === null || span.end < from || span.end >= until) continue;
    for (const turn of turns) {
      const after = turn.attributes?.["gen_ai.response.time_to_first_chunk"];
      if (typeof after !== "number") continue;
      found.push(turn.start + after - span.start);
      break;
    }
  }
  return found;
}

/** Tokens by what they were computed for, and the seconds in which any step ran. */
export interface Tokens {
  decoded: number;
  prefilled: number;
  recomputed: number;
  busy: number;
}

/** Return the tokens of [from, until). A step that reaches over an edge counts with its share within. */
export function tokensIn(steps: Steps, from: number, until: number): Tokens {
  const found: Tokens = { decoded: 0, prefilled: 0, recomputed: 0, busy: 0 };
  const { at, seconds, decode_tokens, prefill_tokens, recompute_tokens } = steps.columns;
  let reached = from;
  for (let row = firstReaching(steps, from); row < steps.length && at[row] < until; row++) {
    const end = at[row] + seconds[row];
    const share = shareWithin(at[row], end, from, until);
    if (!share) continue;
    found.decoded += share * decode_tokens[row];
    found.prefilled += share * prefill_tokens[row];
    found.recomputed += share * recompute_tokens[row];
    // The steps of several engines, or of one that runs ahead, lie over one another.
    found.busy += Math.max(0, Math.min(end, until) - Math.max(at[row], reached));
    reached = Math.max(reached, Math.min(end, until));
  }
  return found;
}

/** The longest that a step is looked back for, in seconds. */
const LONG = 60;

function firstReaching(steps: Steps, time: number): number {
  return firstFrom(steps.at, steps.length, time - LONG);
}

function shareWithin(start: number, end: number, from: number, until: number): number {
  if (end <= start) return start >= from && start < until ? 1 : 0;
  return Math.max(0, Math.min(end, until) - Math.max(start, from)) / (end - start);
}

/** Requests to the server by how they ended. */
export type Answer = "answered" | "refused" | "failed" | "left";
export const ANSWERS: readonly Answer[] = ["answered", "refused", "failed", "left"];
/** The status under which a request is recorded whose client left before its answer was over. */
const LEFT = 499;

export function answerOf(status: number): Answer {
  if (status === LEFT) return "left";
  if (status >= 500) return "failed";
  return status >= 400 ? "refused" : "answered";
}

export interface Answers {
  counts: Record<Answer, number>;
  /** What was not answered, by status and code, the most frequent first. */
  reasons: { status: number; code: string; count: number }[];
}

/** Return the answers of [from, until): a request counts when it was answered. */
export function answersIn(entries: readonly HttpEntry[], from: number, until: number): Answers {
  const counts: Answers["counts"] = { answered: 0, refused: 0, failed: 0, left: 0 };
  const reasons = new Map<string, Answers["reasons"][number]>();
  for (const { at, status, code = "", count = 1 } of entries) {
    if (at < from || at >= until) continue;
    const answer = answerOf(status);
    counts[answer] += count;
    if (answer === "answered") continue;
    const key = `${status} ${code}`;
    const known = reasons.get(key);
    if (known) known.count += count;
    else reasons.set(key, { status, code, count });
  }
  return { counts, reasons: [...reasons.values()].sort((a, b) => b.count - a.count) };
}

/** Return how many requests went on at `time`. */
export function openAt(trace: Trace, time: number): number {
  let open = 0;
  for (const lane of trace.lanes) if (lane.length && lane.start < time && lane.left >= time && lane.cut === Infinity) open += 1;
  return open;
}

/** Return how many requests were cut off in (from, until] when their server ended and others went on. */
export function cutIn(trace: Trace, from: number, until: number): number {
  return trace.lanes.reduce((sum, { end, cut }) => sum + (end === null && cut > from && cut <= until ? 1 : 0), 0);
}
