// What bounded the end of a run: the chain of turns, calls and times between them, each of which ended when the next began.
import type { SpanEntry } from "./records";
import type { Run } from "./spans";

/** A link of the chain; `span` is null where the run did something between its turns and calls. */
export interface Link {
  kind: "turn" | "call" | "between";
  span: SpanEntry | null;
  from: number;
  to: number;
  /** Calls that ran beside this one and had ended before it. */
  beside: number;
}

/** Times of spans of one process are this close where one ends and the next begins, in seconds. */
const CLOSE = 1e-4;

/** Walk back from the run's end, or from `now`, to its beginning. The links add up to the whole run. */
export function criticalPath(run: Run, now: number): Link[] {
  const until = (span: SpanEntry): number => span.end ?? now;
  const children = [...run.turns, ...run.calls].filter((span) => until(span) > span.start);
  const calls = new Set(run.calls);
  const path: Link[] = [];
  let at = until(run.span);
  while (at > run.span.start + CLOSE) {
    const before = children.filter((span) => span.start < at - CLOSE);
    const next = latest(before, at, until, calls);
    const end = next ? Math.min(until(next), at) : run.span.start;
    if (at - end > CLOSE) path.push({ kind: "between", span: null, from: end, to: at, beside: 0 });
    if (!next) break;
    const from = Math.max(next.start, run.span.start);
    const kind = calls.has(next) ? "call" : "turn";
    const beside = kind === "turn" ? 0
      : run.calls.filter((one) => one !== next && one.start < end && until(one) > from && until(one) <= end).length;
    path.push({ kind, span: next, from, to: end, beside });
    at = from;
  }
  return path.reverse();
}

/** The span that went on longest before `at`; of those that reach it, the turn, since it makes the calls. */
function latest(
  spans: readonly SpanEntry[], at: number, until: (span: SpanEntry) => number, calls: ReadonlySet<SpanEntry>,
): SpanEntry | undefined {
  let best: SpanEntry | undefined;
  for (const span of spans) {
    if (!best) {
      best = span;
      continue;
    }
    const further = Math.min(until(span), at) - Math.min(until(best), at);
    const turn = calls.has(best) && !calls.has(span);
    if (further > CLOSE || (Math.abs(further) <= CLOSE && turn)) best = span;
  }
  return best;
}
