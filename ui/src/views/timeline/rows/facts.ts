// What is told of a request besides its states: the question, tools, model, finish and errors; labels come from it.
import { failedIn, idOf } from "../../../model/failing";
import { type Lane, WAITING } from "../../../model/lane";
import type { SpanEntry } from "../../../model/records";
import type { Run } from "../../../model/spans";
import type { Trace } from "../../../model/trace";
import { type Who, whoOf } from "../../../model/who";
import { questionOf, visible } from "../../session/content";
import { askedIn } from "../../session/names";

export interface Facts {
  /** What the user asked, in one line; "" where content was not recorded. */
  question: string;
  /** The tools that it paused for or called, each once. */
  tools: string[];
  model: string;
  /** Why the engine stopped: `stop`, `length`, ...; "" while it goes on. */
  finish: string;
  /** Kinds of errors in its turn and its run. */
  errors: string[];
  /** What failed in its run, each by what it has in common with others. */
  failures: string[];
  who: Who;
}

interface Known {
  turn: SpanEntry | undefined;
  changes: number;
  pauses: number;
  end: unknown;
  facts: Facts;
}
const known = new WeakMap<Lane, Known>();

/** Return the facts of a lane; they are made anew only when its records have changed. */
export function factsOf(trace: Trace, lane: Lane): Facts {
  const turn = trace.spans.turnOf(lane.id);
  const run = trace.spans.runOfRequest(lane.id);
  const pauses = trace.pausesOf(lane.id);
  const end = trace.sessions.get(lane.session)?.end ?? null;
  const changes = run?.changes ?? -1;
  const kept = known.get(lane);
  if (kept && kept.turn === turn && kept.changes === changes && kept.pauses === pauses.length && kept.end === end) return kept.facts;
  const called = pauses.length ? pauses.map((pause) => pause.tool) : (run?.calls ?? []).map(toolOf);
  const facts: Facts = {
    // Later turns of a run are given results, and no question.
    question: run ? askedIn(run) : turn ? questionOf(turn) : "",
    tools: [...new Set(called.filter((tool) => tool !== null))],
    model: textOf(turn, "gen_ai.request.model") || textOf(turn, "gen_ai.response.model"),
    finish: end?.outcome ?? finishOf(turn),
    errors: turn ? errorsOf(turn, run) : [],
    failures: run ? [...new Set(failedIn(run, trace.partOf(lane.id).server).map(idOf))] : [],
    who: whoOf(trace.spans, run),
  };
  known.set(lane, { turn, changes, pauses: pauses.length, end, facts });
  return facts;
}

/** What a lane is called: the question, else the tools, else its id. */
export function labelOf(trace: Trace, lane: Lane): string {
  const { question, tools } = factsOf(trace, lane);
  return visible(question || tools.join(", ") || lane.id);
}

/** Whether an id begins so: as a whole, or any of its parts behind a dash if four characters or more are given. */
export function idBegins(id: string, word: string): boolean {
  const lower = id.toLowerCase();
  return lower.startsWith(word) || lower.startsWith(word, lower.indexOf(":") + 1) || (word.length >= 4 && lower.includes(`-${word}`));
}

/** Seconds that a request has waited in the queue; `now` ends what goes on. */
export function waitedOf(lane: Lane, now: number): number {
  let seconds = 0;
  for (let row = 0; row < lane.length; row++) {
    if (lane.kv[row] === WAITING) seconds += lane.until(row, now) - lane.at[row];
  }
  return seconds;
}

/** The most tokens of its context. */
export function tokensOf(lane: Lane): number {
  let most = 0;
  for (let row = 0; row < lane.length; row++) most = Math.max(most, lane.tokens[row]);
  return most;
}

/** Block-seconds of regret over its pauses. */
export function regretOf(trace: Trace, lane: Lane): number {
  let sum = 0;
  for (const pause of trace.pausesOf(lane.id)) sum += pause.regret ?? 0;
  return sum;
}

function textOf(span: SpanEntry | undefined, name: string): string {
  const value = span?.attributes?.[name];
  return typeof value === "string" ? value : "";
}

const toolOf = (call: SpanEntry): string | null => textOf(call, "gen_ai.tool.name") || null;

function finishOf(turn: SpanEntry | undefined): string {
  const reasons = turn?.attributes?.["gen_ai.response.finish_reasons"];
  return Array.isArray(reasons) && typeof reasons[0] === "string" ? reasons[0] : "";
}

function errorsOf(turn: SpanEntry, run: Run | undefined): string[] {
  const spans = run ? [run.span, ...run.turns, ...run.calls] : [turn];
  const failed = spans.filter((span) => span.status === "error");
  return [...new Set(failed.map((span) => textOf(span, "error.type") || "error"))];
}
