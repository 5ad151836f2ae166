// Sessions that go round in circles: the same tool called with the same arguments again and again.
import type { Pause } from "./pause";
import type { Run } from "./spans";
import type { SpanEntry } from "./records";
import type { Trace } from "./trace";

/** Calls with equal arguments: fewer say nothing, since a call may be tried again. */
export const LEAST = 3;

/** Equal calls of one session. */
export interface Loop {
  tool: string;
  /** How many times it was called so. */
  times: number;
  /** Tokens of the calls behind the first: those that the model wrote for them, and those of their results. */
  tokens: number;
}

/** The tokens that a pause's result brought into the context; null where they are not recorded (yet). */
export function resultTokensOf(trace: Trace, pause: Pause): number | null {
  if (pause.outcome !== "resumed" && pause.outcome !== "followed") return null;
  const all = trace.pausesOfSession(trace.byRequest.get(pause.request)?.session ?? pause.session);
  const next = all[placeOf(all, pause) + 1];
  // The segment behind it begins with the result, and is told when it ends.
  if (next) return next.end?.given_tokens ?? null;
  return trace.sessions.get(pause.session)?.end?.given_tokens ?? null;
}

/** Return the calls that a session made three times and more with equal arguments, those of most tokens first. */
export function loopsOf(trace: Trace, runs: readonly Run[], pauses: readonly Pause[]): Loop[] {
  const calls = runs.flatMap((run) => run.calls);
  if (calls.length < LEAST) return [];
  const equal = new Map<string, SpanEntry[]>();
  for (const call of calls) {
    const same = sameOf(call);
    if (same === null) continue;
    const known = equal.get(same);
    if (known) known.push(call);
    else equal.set(same, [call]);
  }
  const loops: Loop[] = [];
  for (const group of equal.values()) {
    if (group.length < LEAST) continue;
    const again = group.sort((a, b) => a.start - b.start).slice(1);
    loops.push({ tool: nameOf(again[0]), times: group.length, tokens: tokensOf(trace, again, pauses) });
  }
  return loops.sort((a, b) => b.tokens - a.tokens);
}

/** What calls have taken: each segment of the model that ended with one, and its result. */
function tokensOf(trace: Trace, calls: readonly SpanEntry[], pauses: readonly Pause[]): number {
  const paid = new Set<Pause>();
  for (const call of calls) {
    const pause = pauses.find((one) => one.at <= (call.end ?? Infinity) + CLOSE && (one.at + (one.seconds ?? Infinity)) >= call.start - CLOSE && one.tool === nameOf(call));
    if (pause) paid.add(pause);
  }
  let tokens = 0;
  for (const pause of paid) tokens += (pause.end?.decoded_tokens ?? 0) + (resultTokensOf(trace, pause) ?? 0);
  return tokens;
}

/** Times of the two processes' clocks are this close, in seconds. */
const CLOSE = 0.05;

/** The same for calls with the same tool and arguments; null where nothing tells. */
function sameOf(call: SpanEntry): string | null {
  const digest = call.attributes?.["caesura.tool.call_digest"];
  if (typeof digest === "string") return digest;
  const given = call.attributes?.["gen_ai.tool.call.arguments"];
  return typeof given === "string" ? `${nameOf(call)} ${given}` : null;
}

function nameOf(call: SpanEntry): string {
  const name = call.attributes?.["gen_ai.tool.name"];
  return typeof name === "string" ? name : "";
}

function placeOf(all: readonly Pause[], pause: Pause): number {
  let [low, high] = [0, all.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (all[middle].at < pause.at) low = middle + 1;
    else high = middle;
  }
  return low;
}
