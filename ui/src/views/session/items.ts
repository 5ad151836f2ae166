// What the list of sessions holds: conversations of runs, and the engine's sessions without spans.
import type { Run } from "../../model/spans";
import type { Trace } from "../../model/trace";
import { questionOf } from "./content";
import { type SessionFigures, figuresOf } from "./figures";
import { textIn } from "./transcript";

/** A conversation or a session, with what the list sorts by; times in seconds. */
export interface Item {
  id: string;
  /** What the user asked first, where content was captured; else "". */
  title: string;
  runs: Run[];
  sessions: SessionFigures[];
  start: number;
  /** Null while it goes on. */
  end: number | null;
  /** From its arrival to its end or to now, tools included. */
  duration: number;
  tokens: number;
  calls: number;
  regret: number | null;
  errors: number;
  /** By the states' codes. */
  seconds: Float64Array;
}

export type SortKey = "start" | "duration" | "tokens" | "calls" | "regret" | "errors";

/** Return all items in the order of their arrival. */
export function itemsOf(trace: Trace, now: number): Item[] {
  const sessions = new Map(figuresOf(trace, now).map((one) => [one.id, one]));
  const groups = new Map<string, { runs: Run[]; sessions: Set<string> }>();
  for (const run of trace.runs) {
    const used = run.turns.flatMap((turn) => trace.laneOfSpan(turn)?.session ?? []);
    const id = textIn(run.span.attributes, "gen_ai.conversation.id") ?? used[0] ?? run.id;
    const group = groups.get(id) ?? { runs: [], sessions: new Set() };
    group.runs.push(run);
    for (const session of used) group.sessions.add(session);
    groups.set(id, group);
  }
  const claimed = new Set([...groups.values()].flatMap((group) => [...group.sessions]));
  for (const id of sessions.keys()) {
    if (!claimed.has(id)) groups.set(id, { runs: groups.get(id)?.runs ?? [], sessions: new Set([id]) });
  }
  return [...groups].map(([id, group]) => item(
    id, group.runs, [...group.sessions].flatMap((one) => sessions.get(one) ?? []), now,
  )).sort((a, b) => a.start - b.start || (a.id < b.id ? -1 : 1));
}

/** Return the items that contain `words` in an id, a name or what was asked first, sorted. */
export function listed(items: Item[], words: string, key: SortKey, ascending: boolean): Item[] {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const kept = items.filter((one) => {
    const text = searched(one);
    return wanted.every((word) => text.includes(word));
  });
  const sign = ascending ? 1 : -1;
  return kept.sort((a, b) => sign * ((a[key] ?? -1) - (b[key] ?? -1)) || a.start - b.start);
}

/** Return the item of a session, a run, a conversation or a request. */
export function find(items: Item[], id: string): Item | undefined {
  return items.find((one) => one.id === id) ?? items.find((one) =>
    one.runs.some((run) => run.id === id || run.span.trace === id || run.span.span === id) ||
    one.sessions.some((session) => session.id === id || session.lanes.some((lane) => lane.id === id)));
}

function searched(one: Item): string {
  const names = one.runs.flatMap((run) => [run.id, run.span.name, ...run.calls.map((call) => call.name)]);
  const ids = one.sessions.flatMap((session) => [
    session.id, ...session.lanes.map((lane) => lane.id), ...session.pauses.map((pause) => pause.tool ?? ""),
  ]);
  return [one.id, one.title, ...names, ...ids].join(" ").toLowerCase();
}

function item(id: string, runs: Run[], sessions: SessionFigures[], now: number): Item {
  const ends = [...runs.map((run) => run.span.end), ...sessions.map((session) => session.end)];
  const open = ends.includes(null);
  const start = Math.min(...runs.map((run) => run.span.start), ...sessions.map((one) => one.start));
  const end = open ? null : Math.max(...(ends as number[]));
  const regrets = sessions.flatMap((session) => (session.regret === null ? [] : [session.regret]));
  const seconds = new Float64Array(sessions[0]?.seconds.length ?? 0);
  for (const session of sessions) session.seconds.forEach((each, code) => (seconds[code] += each));
  return {
    id, runs, sessions, start, end, seconds,
    title: runs[0]?.turns[0] ? questionOf(runs[0].turns[0]) : "",
    duration: (end ?? now) - start,
    tokens: Math.max(0, ...sessions.map((session) => session.tokens)),
    // Spans know of several calls in one pause, the engine of those that clients carry out.
    calls: Math.max(
      runs.reduce((sum, run) => sum + run.calls.length, 0), sessions.reduce((sum, session) => sum + session.calls, 0),
    ),
    regret: regrets.length ? regrets.reduce((sum, each) => sum + each, 0) : null,
    errors: runs.reduce((sum, run) => sum + errorsOf(run), 0),
  };
}

function errorsOf(run: Run): number {
  return [run.span, ...run.turns, ...run.calls].filter((span) => span.status === "error").length;
}
