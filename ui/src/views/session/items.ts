// What the list of sessions holds: conversations of runs, and the engine's sessions without spans.
import { largest, smallest } from "../../charts/stats";
import { failuresOf, failuresSaid } from "../../model/failures";
import type { Lane } from "../../model/lane";
import { type Loop, loopsOf } from "../../model/loops";
import type { Run } from "../../model/spans";
import type { Trace } from "../../model/trace";
import { PARTS, type Part, type Who, idsOf, whoOf } from "../../model/who";
import { idBegins } from "../timeline/rows/facts";
import { type SessionFigures, figuresOfOne } from "./figures";
import { askedIn } from "./names";
import { textIn } from "./transcript";

/** A conversation or a session, with what the list sorts by; times in seconds. */
export interface Item {
  id: string;
  /** What the user asked first, where content was captured; else "". */
  title: string;
  who: Who;
  /** What its server is called, where there are several. */
  server: string;
  /** The tools that were called, for a session without a title. */
  tools: string;
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
  /** Tokens that went into calls that were made before. */
  looped: number;
  /** What failed, in words. */
  failures: string;
  /** Calls that were made again and again with equal arguments. */
  loops: Loop[];
  /** By the states' codes. */
  seconds: Float64Array;
}

export type SortKey = "start" | "duration" | "tokens" | "calls" | "regret" | "errors" | "looped" | Part;

/** The runs and sessions of an item. */
interface Group {
  runs: Run[];
  sessions: Set<string>;
}

/** An item as it was made, and from what: it is made anew only where that has changed. */
interface Kept {
  changes: number;
  runs: Run[];
  sessions: SessionFigures[];
  item: Item;
}
const known = new WeakMap<Trace, Map<string, Kept>>();

/** Return all items in the order of their arrival; those of which nothing is new are the same objects. */
export function itemsOf(trace: Trace, now: number): Item[] {
  const items = trace.parts.flatMap((part) => itemsOfOne(part, Math.min(now, part.cut)));
  return items.sort((a, b) => a.start - b.start || (a.id < b.id ? -1 : 1));
}

function itemsOfOne(trace: Trace, now: number): Item[] {
  let kept = known.get(trace);
  if (!kept) known.set(trace, (kept = new Map()));
  const items: Item[] = [];
  for (const [id, group] of groupsOf(trace)) {
    const own: SessionFigures[] = [];
    for (const one of group.sessions) own.push(figuresOfOne(trace, one, now));
    let changes = 0;
    for (const run of group.runs) changes += run.changes;
    let one = kept.get(id);
    if (!one || one.item.end === null || one.changes !== changes || !alike(one.runs, group.runs) || !alike(one.sessions, own)) {
      kept.set(id, (one = { changes, runs: group.runs, sessions: own, item: item(trace, id, group.runs, own, now) }));
    }
    items.push(one.item);
  }
  return items;
}

/** Runs by their conversation, or the session that they used; and sessions that no run has used. */
function groupsOf(trace: Trace): Map<string, Group> {
  const groups = new Map<string, Group>();
  const claimed = new Set<string>();
  for (const run of trace.runs) {
    const used = lanesOf(trace, run);
    const id = textIn(run.span.attributes, "gen_ai.conversation.id") ?? used[0]?.session ?? run.id;
    let group = groups.get(id);
    if (!group) groups.set(id, (group = { runs: [], sessions: new Set() }));
    group.runs.push(run);
    for (const { session } of used) {
      group.sessions.add(session);
      claimed.add(session);
    }
  }
  for (const id of trace.sessionIds()) {
    if (!claimed.has(id)) groups.set(id, { runs: groups.get(id)?.runs ?? [], sessions: new Set([id]) });
  }
  return groups;
}

const used = new WeakMap<Run, { changes: number; lanes: Lane[]; missing: boolean; seen: number }>();

/** The lanes of a run's turns. They are looked up again when the run has grown, or a lane was missing and more have come. */
function lanesOf(trace: Trace, run: Run): readonly Lane[] {
  const kept = used.get(run);
  if (kept?.changes === run.changes && (!kept.missing || kept.seen === trace.lanes.length)) return kept.lanes;
  const request = textIn(run.span.attributes, "caesura.request.id");
  const began = request === null || run.turns.length > 0 ? [] : [run.span]; // its first turn is not over
  const turns = [...began, ...run.turns];
  const lanes = turns.flatMap((turn) => trace.laneOfSpan(turn) ?? []);
  used.set(run, { changes: run.changes, lanes, missing: lanes.length < turns.length, seen: trace.lanes.length });
  return lanes;
}

const alike = <T>(a: readonly T[], b: readonly T[]): boolean => a.length === b.length && a.every((one, i) => one === b[i]);

/** Return the items that contain `words` in a name or what was asked first, or at the beginning of an id, sorted. */
export function listed(items: Item[], words: string, key: SortKey, ascending: boolean): Item[] {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const kept = wanted.length ? items.filter((one) => wanted.every((word) => mentions(one, word))) : [...items];
  const sign = ascending ? 1 : -1;
  if (isPart(key)) return kept.sort((a, b) => sign * a.who[key].localeCompare(b.who[key]) || a.start - b.start);
  return kept.sort((a, b) => sign * ((a[key] ?? -1) - (b[key] ?? -1)) || a.start - b.start);
}

/** Return the item of a session, a run, a conversation or a request. */
export function find(items: Item[], id: string): Item | undefined {
  return items.find((one) => one.id === id) ?? items.find((one) =>
    one.runs.some((run) => run.id === id || run.span.trace === id || run.span.span === id || givenTo(run).includes(id)) ||
    one.sessions.some((session) => session.id === id || session.lanes.some((lane) => lane.id === id)));
}

const isPart = (key: SortKey): key is Part => (PARTS as readonly string[]).includes(key);

interface Searched {
  text: string;
  ids: string[];
}
const texts = new WeakMap<Item, Searched>();

/** Whether a text of the item holds the word, or an id of it begins so. */
function mentions(one: Item, word: string): boolean {
  let known = texts.get(one);
  if (!known) texts.set(one, (known = searchedIn(one)));
  return known.text.includes(word) || known.ids.some((id) => idBegins(id, word));
}

/** What is searched of an item; gathered once. */
function searchedIn(one: Item): Searched {
  const names = one.runs.flatMap((run) => [run.span.name, ...run.calls.map((call) => call.name)]);
  const tools = one.sessions.flatMap((session) => session.pauses.map((pause) => pause.tool ?? ""));
  const ids = one.sessions.flatMap((session) => [session.id, ...session.lanes.map((lane) => lane.id)]);
  const given = one.runs.flatMap(givenTo);
  return {
    text: [one.title, ...names, ...tools].join(" ").toLowerCase(),
    ids: [one.id, ...one.runs.map((run) => run.id), ...ids, ...idsOf(one.who), ...given],
  };
}

/** The ids by which a client knows a run: its answer's and its request's. */
const givenTo = ({ span: { attributes } }: Run): string[] =>
  [textIn(attributes, "gen_ai.response.id"), textIn(attributes, "caesura.x_request_id")].flatMap((id) => id ?? []);

function item(trace: Trace, id: string, runs: Run[], sessions: SessionFigures[], now: number): Item {
  const ends = [...runs.map((run) => run.span.end), ...sessions.map((session) => session.end)];
  const open = ends.includes(null);
  const start = smallest([...runs.map((run) => run.span.start), ...sessions.map((one) => one.start)]);
  const end = open ? null : largest(ends as number[]);
  const regrets = sessions.flatMap((session) => (session.regret === null ? [] : [session.regret]));
  const kinds = runs.flatMap((run) => failuresOf(run).map((one) => one.kind));
  const loops = loopsOf(trace, runs, sessions.flatMap((session) => session.pauses));
  const seconds = new Float64Array(sessions[0]?.seconds.length ?? 0);
  for (const session of sessions) session.seconds.forEach((each, code) => (seconds[code] += each));
  return {
    id, runs, sessions, start, end, seconds,
    who: whoOf(trace.spans, runs[0]),
    server: trace.server,
    title: runs[0] ? askedIn(runs[0]) : "",
    tools: toolsOf(runs, sessions),
    duration: (end ?? now) - start,
    tokens: largest(sessions.map((session) => session.tokens), 0),
    // Spans know of several calls in one pause, the engine of those that clients carry out.
    calls: Math.max(
      runs.reduce((sum, run) => sum + run.calls.length, 0), sessions.reduce((sum, session) => sum + session.calls, 0),
    ),
    regret: regrets.length ? regrets.reduce((sum, each) => sum + each, 0) : null,
    errors: kinds.length,
    failures: failuresSaid(kinds),
    loops,
    looped: loops.reduce((sum, loop) => sum + loop.tokens, 0),
  };
}

function toolsOf(runs: readonly Run[], sessions: readonly SessionFigures[]): string {
  const names = new Set<string>();
  for (const run of runs) for (const call of run.calls) names.add(textIn(call.attributes, "gen_ai.tool.name") ?? "");
  for (const session of sessions) for (const pause of session.pauses) names.add(pause.tool ?? "");
  names.delete("");
  return [...names].join(", ");
}
