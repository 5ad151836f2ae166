// Which requests are shown: by words, tool, state and outcome, by what is told of them, and by least sizes.
import type { Filters } from "../../../app/state";
import { type Lane, STATES } from "../../../model/lane";
import type { Trace } from "../../../model/trace";
import { PARTS, type Part, idsOf } from "../../../model/who";
import { factsOf, idBegins, tokensOf, waitedOf } from "./facts";

/** Filters of the timeline alone; "" and 0 let everything through. */
export interface More {
  model: string;
  finish: string;
  error: string;
  /** What failures have in common, as the view of errors puts it. */
  failure: string;
  tenant: string;
  user: string;
  session: string;
  /** What its server is called, where there are several. */
  server: string;
  /** Least seconds from arrival to the end, least seconds in the queue, least tokens. */
  seconds: number;
  waited: number;
  tokens: number;
}

export const NO_MORE: More = { model: "", finish: "", error: "", failure: "", tenant: "", user: "", session: "", server: "", seconds: 0, waited: 0, tokens: 0 };

/** Whether a lane is what the filters ask for. */
export function passing(trace: Trace, { q, tool, state, outcome }: Filters): (lane: Lane) => boolean {
  const words = q.toLowerCase().split(/\s+/).filter(Boolean);
  const code = STATES.indexOf(state as (typeof STATES)[number]);
  return (lane) =>
    lane.length > 0 &&
    words.every((word) => mentions(trace, lane, word)) &&
    (!tool || trace.pausesOf(lane.id).some((pause) => pause.tool === tool)) &&
    (code < 0 || lane.seen(code)) &&
    (!outcome || outcomesOf(trace, lane).has(outcome));
}

/** Whether a lane is what the further filters ask for; `now` ends what goes on. */
export function passingMore(trace: Trace, more: More, now: number): (lane: Lane) => boolean {
  const { model, finish, error, failure, server, seconds, waited, tokens } = more;
  return (lane) => {
    if (server && trace.parts.length > 1 && trace.partOf(lane.id).server !== server) return false;
    if (seconds && Math.min(lane.left, now) - lane.start < seconds) return false;
    if (waited && waitedOf(lane, now) < waited) return false;
    if (tokens && tokensOf(lane) < tokens) return false;
    const asks = PARTS.some((part) => more[part]);
    if (!model && !finish && !error && !failure && !asks) return true;
    const facts = factsOf(trace, lane);
    if (PARTS.some((part) => more[part] && facts.who[part] !== more[part])) return false;
    return (!model || facts.model === model) && (!finish || facts.finish === finish) && (!error || facts.errors.includes(error)) &&
      (!failure || facts.failures.includes(failure));
  };
}

/** What there is to choose from, sorted. */
export function choicesOf(trace: Trace): { models: string[]; finishes: string[]; errors: string[]; who: Record<Part, string[]> } {
  const models = new Set<string>();
  const finishes = new Set<string>();
  const errors = new Set<string>();
  const who = { tenant: new Set<string>(), user: new Set<string>(), session: new Set<string>() };
  for (const lane of trace.lanes) {
    const facts = factsOf(trace, lane);
    models.add(facts.model);
    finishes.add(facts.finish);
    for (const kind of facts.errors) errors.add(kind);
    for (const part of PARTS) who[part].add(facts.who[part]);
  }
  const listed = (set: Set<string>): string[] => [...set].filter(Boolean).sort();
  return {
    models: listed(models), finishes: listed(finishes), errors: listed(errors),
    who: { tenant: listed(who.tenant), user: listed(who.user), session: listed(who.session) },
  };
}

/** Whether an id or a name of who asked begins with the word, or a tool or the question holds it. */
function mentions(trace: Trace, lane: Lane, word: string): boolean {
  if (idBegins(lane.id, word) || idBegins(lane.session, word)) return true;
  const { question, tools, who } = factsOf(trace, lane);
  if (idsOf(who).some((id) => idBegins(id, word))) return true;
  return tools.some((tool) => tool.toLowerCase().includes(word)) || question.toLowerCase().includes(word);
}

/** What came of a lane's pauses (`preserve`, `resumed`, ...), and of its session (`stop`, ...). */
export function outcomesOf(trace: Trace, lane: Lane): Set<string> {
  const outcomes = new Set<string>();
  for (const pause of trace.pausesOf(lane.id)) {
    outcomes.add(pause.outcome);
    if (pause.handling && pause.handling !== "none") outcomes.add(pause.handling);
    if ((pause.regret ?? 0) > 0) outcomes.add("regret");
  }
  const end = trace.sessions.get(lane.session)?.end?.outcome;
  if (end) outcomes.add(end);
  return outcomes;
}
