// A turn of the model: what it was sent, what it wrote, the calls that it made, and what that took.
import { link } from "../../app/router";
import { count, counted, duration } from "../../format";
import { kindOf } from "../../model/failures";
import { CallCard } from "./call";
import { PauseChip, handlingSaid } from "./chip";
import { type Message, artifactsIn, visible } from "./content";
import { Artifact } from "./artifact";
import { Difference } from "./difference";
import { followUp } from "./followup";
import { Said } from "./said";
import { type Turn, numberIn, textIn } from "./transcript";

/** `made` are the run's files, which are shown with the calls that made them. */
export function TurnCard({ turn, number, made, now }: { turn: Turn; number: number; made: ReadonlySet<string>; now: number }) {
  const answered = new Set(turn.calls.map((call) => call.id));
  return (
    <li class="turn" data-testid="turn">
      <Before turn={turn} now={now} />
      <div class="turn-head">
        <h4>Turn {number}</h4>
        <Facts turn={turn} />
      </div>
      <Difference attributes={turn.span?.attributes} />
      {turn.earlier.length > 0 && (
        <details class="earlier">
          <summary class="small">{counted(turn.earlier.length, "earlier message")}</summary>
          {turn.earlier.map((message, at) => <Spoken key={at} message={message} />)}
        </details>
      )}
      {turn.said.map((message, at) => <Spoken key={at} message={message} />)}
      {turn.output.map((message, at) => <Spoken key={at} message={message} hidden={answered} made={made} />)}
      {turn.malformed.map((name, at) => (
        <p key={at} class="small bad">A call{name && <> of <span class="mono">{visible(name)}</span></>} could not be read, and nothing was run.</p>
      ))}
      {turn.calls.map((call, at) => <CallCard key={call.span?.span ?? at} call={call} now={now} />)}
    </li>
  );
}

/** The pause that ended with this turn: from the records, or else what the turn's span says of it. */
function Before({ turn, now }: { turn: Turn; now: number }) {
  if (turn.pause) return <PauseChip pause={turn.pause} now={now} />;
  const attributes = turn.span?.attributes;
  const handling = textIn(attributes, "caesura.pause.handling");
  if (handling === null) return null;
  return (
    <span class="pausechip">
      <i class={`handling ${handling}`} aria-hidden="true" />
      <span>paused <b>{duration(numberIn(attributes, "caesura.pause.seconds"))}</b></span>
      <span>{handlingSaid(handling)}</span>
      <span class="muted">its decision is not in the recording</span>
    </span>
  );
}

function Facts({ turn }: { turn: Turn }) {
  const { span } = turn;
  if (!span) return <span class="facts">being written; it is shown when it ends</span>;
  const of = (name: string): number | null => numberIn(span.attributes, name);
  const first = of("gen_ai.response.time_to_first_chunk");
  const thought = of("gen_ai.usage.reasoning.output_tokens");
  const follows = followUp(span.attributes);
  return (
    <span class="facts">
      <span>{span.end === null ? "open" : duration(span.end - span.start)}</span>
      {first !== null && <span title="From the turn's beginning until its first text or call could be sent on; a call can be when it is known to be one">first output {duration(first)}</span>}
      <span title="Tokens that were appended for this turn">{count(of("caesura.appended_tokens"))} tokens in</span>
      <span>{count(of("gen_ai.usage.output_tokens"))} out</span>
      {thought !== null && <span title="Those of the tokens out that the model spent on thinking" data-testid="thinking-tokens">{count(thought)} of them thinking</span>}
      <span title="Tokens of the context that needed no computation">{count(of("gen_ai.usage.cache_read.input_tokens"))} cached</span>
      {follows && <span title={follows.title} data-testid="follow-up">{visible(follows.said)}</span>}
      {turn.lane && <a href={link("timeline", [], { sel: turn.lane.id, t0: String(span.start), t1: String(span.end ?? span.start + 1) })}>timeline</a>}
      {span.status === "error" && <span class="bad">{kindOf(span)}{span.message && `, ${visible(span.message)}`}</span>}
    </span>
  );
}

/** What the model thought before it answered. */
function Thought({ text }: { text: string }) {
  return (
    <details class="thought" data-testid="thought">
      <summary class="small">thinking, {counted(text.length, "character")}</summary>
      <Said text={text} />
    </details>
  );
}

const NONE: ReadonlySet<string> = new Set();

/** A message; calls in `hidden` are shown with their results below. */
function Spoken({ message, hidden = NONE, made = NONE }: { message: Message; hidden?: ReadonlySet<string>; made?: ReadonlySet<string> }) {
  const parts = message.parts.filter((part) => !(part.kind === "call" && hidden.has(part.id)));
  if (!parts.some((part) => part.text !== "" || part.kind === "call")) return null;
  return (
    <div class={`message ${message.role === "assistant" ? "assistant" : "other"}`} data-testid="message">
      <span class="who">{visible(message.role) || "text"}</span>
      {parts.map((part, at) => (
        <div key={at}>
          {part.kind === "call" && <span class="mono small">calls {visible(part.name)}</span>}
          {part.kind === "reasoning"
            ? <Thought text={part.text} />
            : <Said text={part.text} mono={part.kind !== "text"} />}
          {part.kind === "text" && message.role === "assistant" &&
            artifactsIn(part.text).filter((name) => !made.has(name)).map((name) => <Artifact key={name} name={name} />)}
        </div>
      ))}
    </div>
  );
}
