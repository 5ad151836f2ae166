// Which run each request of the engine belongs to: what the server did around it is in the run's spans.
import type { Lane } from "../model/lane";
import type { HttpEntry, SpanEntry } from "../model/records";
import type { Run } from "../model/spans";
import type { Trace } from "../model/trace";

/** A request as the server saw it. */
export interface Served {
  run: Run;
  /** The turns that this request decoded, in time order; one at least. */
  turns: SpanEntry[];
  /** Whether it decoded the run's first turn, and its last. */
  first: boolean;
  last: boolean;
  /** The client's request over HTTP, which is recorded when it is over; null before, and where there is none. */
  http: HttpEntry | null;
}

/** The requests over HTTP by the ids of their answers, kept up to date as entries come. */
class Answers {
  private readonly byId = new Map<string, HttpEntry>();
  private read = 0;

  of(trace: Trace, run: Run): HttpEntry | null {
    for (; this.read < trace.http.length; this.read++) {
      const { answer } = trace.http[this.read];
      if (answer) this.byId.set(answer, trace.http[this.read]);
    }
    const answer = run.span.attributes?.["gen_ai.response.id"];
    return typeof answer === "string" ? (this.byId.get(answer) ?? null) : null;
  }
}

const known = new WeakMap<Trace, Answers>();

/** Return the spans around a request; null where there are none, or none yet: a turn is written when it ends. */
export function servedOf(whole: Trace, lane: Lane): Served | null {
  const trace = whole.partOf(lane.id);
  const turn = trace.spans.turnOf(lane.id);
  const run = turn && trace.spans.runOf(turn);
  if (!run) return null;
  const turns = run.turns.filter((one) => trace.laneOfSpan(one) === lane);
  if (!turns.length) return null;
  let answers = known.get(trace);
  if (!answers) known.set(trace, (answers = new Answers()));
  return { run, turns, first: turns[0] === run.turns[0], last: turns.at(-1) === run.turns.at(-1), http: answers.of(trace, run) };
}

/** When a turn's tokens were handed to the engine; null in older recordings, and where rendering failed. */
export function sentAt(turn: SpanEntry | null | undefined): number | null {
  return turn?.events?.find((event) => event.name === "caesura.request_sent")?.at ?? null;
}
