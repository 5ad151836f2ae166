// A run as a conversation: its turns, the calls of each, and the pause before it.
import type { Lane } from "../../model/lane";
import type { Pause } from "../../model/pause";
import type { Attributes, SpanEntry } from "../../model/records";
import type { Run } from "../../model/spans";
import type { Trace } from "../../model/trace";
import { type Message, artifactsOf, messagesOf } from "./content";

/** A tool call; without a span where the client ran the tool, or nobody did. */
export interface Call {
  id: string;
  name: string;
  arguments: string | null;
  result: string | null;
  artifacts: string[];
  span: SpanEntry | null;
}

/** A turn of the model; without a span while it is still being written. */
export interface Turn {
  span: SpanEntry | null;
  /** What was new to the model, and what it had seen before in other requests. */
  said: Message[];
  earlier: Message[];
  output: Message[];
  calls: Call[];
  malformed: string[];
  lane: Lane | null;
  /** The pause that ended with this turn, if it is in the records. */
  pause: Pause | null;
}

/** Times of the two processes' clocks and of spans' begins are this close, in seconds. */
const CLOSE = 0.05;

/** Return a run's turns in order, the calls where they were made. */
export function transcriptOf(run: Run, trace: Trace): Turn[] {
  const turns = run.turns.map((span, number) => turnOf(span, run.turns[number - 1] ?? null, trace));
  for (const span of run.calls) place(turns, span, run.span.end === null);
  const told = new Set(turns.flatMap((turn) => turn.calls).filter((call) => call.result !== null).map((call) => call.id));
  for (const turn of turns) turn.said = turn.said.map((message) => without(message, told));
  return turns;
}

/** Return the pause behind a run's last turn; null if there is none.
 *
 * The run is in it, was broken off in it, or has ended with a call of a tool of its client's.
 */
export function lastPauseOf(run: Run, trace: Trace): Pause | null {
  const last = run.turns.findLast((turn) => trace.laneOfSpan(turn));
  const lane = last && trace.laneOfSpan(last);
  const until = (run.span.end ?? Infinity) + CLOSE;
  const pauses = trace.pausesOf(lane?.id ?? "").filter((pause) => pause.at >= run.span.start && pause.at <= until);
  if (run.span.end === null) return pauses.findLast((pause) => !pause.end) ?? null;
  // One that has resumed stands before the turn that it came back to.
  return pauses.findLast((pause) => pause.outcome !== "resumed") ?? null;
}

/** The number in an attribute; null if there is none. */
export function numberIn(attributes: Attributes | undefined, name: string): number | null {
  const value = attributes?.[name];
  return typeof value === "number" ? value : null;
}

/** The text in an attribute; null if there is none. */
export function textIn(attributes: Attributes | undefined, name: string): string | null {
  const value = attributes?.[name];
  return typeof value === "string" ? value : null;
}

function turnOf(span: SpanEntry, before: SpanEntry | null, trace: Trace): Turn {
  const input = messagesOf(span.attributes?.["gen_ai.input.messages"]);
  const output = messagesOf(span.attributes?.["gen_ai.output.messages"]);
  const fresh = before === null ? lastAnswer(input) + 1 : 0;
  const lane = trace.laneOfSpan(span) ?? null;
  return {
    span, lane,
    earlier: input.slice(0, fresh),
    said: input.slice(fresh),
    output,
    calls: output.flatMap((message) => message.parts).filter((part) => part.kind === "call")
      .map((part) => ({
        id: part.id, name: part.name, arguments: part.text, result: null, artifacts: [], span: null,
      })),
    malformed: (span.events ?? []).filter((event) => event.name === "caesura.call_malformed")
      .map((event) => textIn(event.attributes, "gen_ai.tool.name") ?? ""),
    pause: lane === null || before === null ? null : pauseBefore(span, before, trace, lane),
  };
}

/** A call's result stands with the call; it is not shown again as what the next turn was sent. */
function without(message: Message, told: Set<string>): Message {
  return { ...message, parts: message.parts.filter((part) => part.kind !== "response" || !told.has(part.id)) };
}

/** What stands before the model's last answer was told to it in an earlier request. */
function lastAnswer(messages: Message[]): number {
  return messages.findLastIndex((message) => message.role === "assistant");
}

function pauseBefore(span: SpanEntry, before: SpanEntry, trace: Trace, lane: Lane): Pause | null {
  const same = trace.laneOfSpan(before);
  const pauses = same ? trace.pausesOf(same.id) : trace.pausesOf(lane.id);
  return pauses.findLast((pause) => pause.at <= span.start + CLOSE && pause.at >= before.start) ?? null;
}

/** Put a call into the turn that made it: the last that had begun. */
function place(turns: Turn[], span: SpanEntry, open: boolean): void {
  const attributes = span.attributes;
  const id = textIn(attributes, "gen_ai.tool.call.id") ?? "";
  const found: Call = {
    id, span,
    name: textIn(attributes, "gen_ai.tool.name") ?? span.name,
    arguments: textIn(attributes, "gen_ai.tool.call.arguments"),
    result: textIn(attributes, "gen_ai.tool.call.result"),
    artifacts: artifactsOf(span),
  };
  let turn = turns.findLast((one) => (one.span?.start ?? Infinity) <= span.start) ?? turns[0];
  // A turn is written when it ends; until then its calls stand alone.
  const ended = turn?.span?.end ?? Infinity;
  if (!turn || (open && turn === turns.findLast((one) => one.span) && span.start > ended + CLOSE)) {
    turn = turns.at(-1)?.span === null ? (turns.at(-1) as Turn) : pending(turns);
  }
  const told = turn.calls.findIndex((call) => call.span === null && call.id === id && id !== "");
  if (told >= 0) turn.calls[told] = { ...found, arguments: found.arguments ?? turn.calls[told].arguments };
  else turn.calls.push(found);
}

function pending(turns: Turn[]): Turn {
  const turn: Turn = {
    span: null, said: [], earlier: [], output: [], calls: [], malformed: [], lane: null, pause: null,
  };
  turns.push(turn);
  return turn;
}
