// All that failed in a recording, put together by what it has in common: kind, code, message, tool or route, key.
import { type Failure, failuresOf } from "./failures";
import type { HttpEntry, SpanEntry } from "./records";
import type { Run } from "./spans";
import type { Trace } from "./trace";

/** Something that went wrong; texts are "" where nothing is known. */
export interface Failed {
  kind: string;
  code: string;
  /** The message without what differs from one time to the next. */
  pattern: string;
  /** The tool of a call, the route of a request that was refused. */
  where: string;
  /** The name of the API key. */
  tenant: string;
  /** Where recordings of several servers are shown as one. */
  server: string;
  at: number;
  /** How many times: equal refusals within a second are one entry. */
  times: number;
  run: Run | null;
  /** The message as it is. */
  message: string;
  /** The ids by which a client knows it: of its answer and of its request. */
  ids: string[];
}

/** Failures that have all of that in common. */
export interface Failing {
  /** What they have in common, in words: the timeline's filter has it in the address. */
  id: string;
  kind: string;
  code: string;
  pattern: string;
  where: string;
  tenant: string;
  server: string;
  times: number;
  first: number;
  last: number;
  /** In the order in which they were found. */
  all: Failed[];
}

/** What statuses are called that a server gives often. */
export const STATUSES: Record<number, string> = {
  400: "not valid", 401: "without a key", 403: "not allowed", 404: "not there", 405: "wrong method", 413: "too large",
  415: "no JSON", 422: "reached a limit", 429: "too many at once", 499: "client left", 500: "internal error", 503: "unavailable",
};

const LONGEST = 140;

/** A message without its numbers, ids and quoted texts, so that equal faults read the same. */
export function patternOf(message: string): string {
  const line = message.replace(/\s+/g, " ").trim().slice(0, 4 * LONGEST)
    .replace(/"[^"]*"|`[^`]*`|(?<!\w)'[^']*'(?!\w)/g, "“…”")
    .replace(/\b(?=[\w-]*\d)[\w-]{12,}|\b0x[0-9a-f]+|\d+(?:[.,:]\d+)*/gi, "#");
  return line.length > LONGEST ? `${line.slice(0, LONGEST - 1)}…` : line;
}

/** What failures have in common, in words. */
export const idOf = ({ kind, code, pattern, where, tenant, server }: Failed): string =>
  [kind, code, where, tenant, server, pattern].filter(Boolean).join(" · ");

/** Return the failures from `t0` to `t1` by what they have in common, the most frequent first. */
export function failingIn(trace: Trace, t0: number, t1: number): Failing[] {
  const groups = new Map<string, Failing>();
  const add = (one: Failed): void => {
    if (one.at < t0 || one.at > t1) return;
    const id = idOf(one);
    const known = groups.get(id);
    if (!known) {
      const { kind, code, pattern, where, tenant, server, times, at } = one;
      groups.set(id, { id, kind, code, pattern, where, tenant, server, times, first: at, last: at, all: [one] });
      return;
    }
    known.all.push(one);
    known.times += one.times;
    known.first = Math.min(known.first, one.at);
    known.last = Math.max(known.last, one.at);
  };
  for (const part of trace.parts) {
    const answers = new Set<string>();
    for (const run of part.runs) {
      const failed = failedIn(run, part.server);
      if (failed.length) answers.add(textOf(run.span, "gen_ai.response.id"));
      failed.forEach(add);
    }
    // The answer to a run that failed is told by the run.
    for (const entry of part.http) if (entry.status >= 400 && !(entry.answer && answers.has(entry.answer))) add(refused(entry, part.server));
    for (const { at, why, state } of part.restarts.all) {
      add({
        kind: "engine died", code: state === "restarted" ? "" : state, pattern: patternOf(why), where: "", tenant: "", server: part.server, at, times: 1, run: null, message: why, ids: [],
      });
    }
  }
  return [...groups.values()].sort((a, b) => b.times - a.times || b.last - a.last);
}

const known = new WeakMap<Run, { changes: number; failed: Failed[] }>();

/** What failed in a run of a server; it is looked at again only when its spans have changed. */
export function failedIn(run: Run, server: string): Failed[] {
  const kept = known.get(run);
  if (kept?.changes === run.changes) return kept.failed;
  const tenant = textOf(run.span, "caesura.tenant");
  const failed = failuresOf(run).map((failure) => told(run, failure, tenant, server));
  known.set(run, { changes: run.changes, failed });
  return failed;
}

function told(run: Run, { kind, span }: Failure, tenant: string, server: string): Failed {
  const message = messageOf(span);
  const code = textOf(span, "caesura.limit");
  const ids = ["gen_ai.response.id", "caesura.x_request_id"].map((name) => textOf(run.span, name)).filter(Boolean);
  return {
    kind, code, message, tenant, server, run, ids, times: 1, pattern: patternOf(message), where: textOf(span, "gen_ai.tool.name"), at: span.end ?? span.start,
  };
}

/** What an error says; a tool's failure is told to the model as its result, which only some recordings have. */
function messageOf(span: SpanEntry): string {
  return span.message || textOf(span, "gen_ai.tool.call.result").split("\n", 1)[0].replace(/^error: /, "");
}

function refused({ status, code = "", route, at, count = 1, tenant = "", answer, request_id }: HttpEntry, server: string): Failed {
  const kind = `${status} ${STATUSES[status] ?? ""}`.trim();
  return { kind, code, pattern: "", where: route, tenant, server, at, times: count, run: null, message: "", ids: [answer, request_id].flatMap((id) => id || []) };
}

/** The refused request whose id or whose answer's id begins so: no run was made for it. */
export function refusedAs(trace: Trace, id: string): HttpEntry | undefined {
  const word = id.trim().toLowerCase();
  if (word.length < 4) return undefined;
  return trace.http.find(({ status, answer, request_id }) =>
    status >= 400 && [answer, request_id].some((one) => one?.toLowerCase().startsWith(word)));
}

/** How many failures there were in each of `bins` equal stretches of [t0, t1]. */
export function spread(all: readonly Failed[], t0: number, t1: number, bins: number): number[] {
  const counts = new Array<number>(bins).fill(0);
  const width = Math.max(t1 - t0, 1e-9) / bins;
  for (const { at, times } of all) counts[Math.min(bins - 1, Math.max(0, Math.floor((at - t0) / width)))] += times;
  return counts;
}

function textOf(span: SpanEntry, name: string): string {
  const value = span.attributes?.[name];
  return typeof value === "string" ? value : "";
}
