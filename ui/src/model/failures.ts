// What went wrong in a run, each thing once: a client that leaves ends its run, its turn and its calls, and is one failure.
import type { SpanEntry } from "./records";
import type { Run } from "./spans";

/** A failure by its kind: "denied", "client left", "unreadable call", "timed out" and so on. */
export interface Failure {
  kind: string;
  /** Where it happened; an unreadable call has the span of its turn. */
  span: SpanEntry;
}

const LEFT = "cancelled";

const KINDS: Record<string, string> = {
  failed: "failed", timeout: "timed out", invalid_arguments: "invalid arguments", unknown_tool: "unknown tool",
  resting: "tool resting", cancelled: "cancelled", LimitReached: "limit reached", EngineFailed: "engine failed",
  ContextOverflow: "context too long",
};

/** The failures of a run in the order in which they are told: its own, its turns', its calls'. */
export function failuresOf(run: Run): Failure[] {
  const found: Failure[] = [];
  const whole = failed(run.span) ? typeOf(run.span) : null;
  if (whole !== null) found.push({ kind: whole === LEFT ? "client left" : kindOf(run.span), span: run.span });
  for (const turn of run.turns) {
    // What ended the turn ended the run, and is told there.
    if (failed(turn) && whole === null) found.push({ kind: kindOf(turn), span: turn });
    for (const event of turn.events ?? []) {
      if (event.name === "caesura.call_malformed") found.push({ kind: "unreadable call", span: turn });
    }
  }
  for (const call of run.calls) {
    const because = whole !== null && typeOf(call) === LEFT;
    if (failed(call) && !because) found.push({ kind: kindOf(call), span: call });
  }
  return found;
}

/** What failed in words, such as "client left" or "2 denied, 1 timed out"; "" for nothing. */
export function failuresSaid(kinds: readonly string[]): string {
  if (kinds.length === 1) return kinds[0];
  const counts = new Map<string, number>();
  for (const kind of kinds) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  return [...counts].map(([kind, count]) => `${count} ${kind}`).join(", ");
}

/** What went wrong in a span, in a word or two. */
export function kindOf(span: SpanEntry): string {
  if (denied(span)) return "denied";
  const type = typeOf(span);
  return KINDS[type] ?? type;
}

/** Whether a person refused the call. */
export const denied = (span: SpanEntry): boolean =>
  (span.events ?? []).some((event) => event.attributes?.["caesura.person.approved"] === false);

const failed = (span: SpanEntry): boolean => span.status === "error";

function typeOf(span: SpanEntry): string {
  const type = span.attributes?.["error.type"];
  return typeof type === "string" && type ? type : "failed";
}
