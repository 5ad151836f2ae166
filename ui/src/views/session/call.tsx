// A tool call: its arguments, its result with pictures and sound in place, its time and its failure.
import { link } from "../../app/router";
import { duration } from "../../format";
import { denied } from "../../model/failures";
import type { SpanEntry } from "../../model/records";
import { Artifact } from "./artifact";
import { readable, visible } from "./content";
import { Said } from "./said";
import { type Call, numberIn, textIn } from "./transcript";

export function CallCard({ call, now }: { call: Call; now: number }) {
  const span = call.span;
  const failed = span?.status === "error";
  return (
    <article class={failed ? "call failed" : "call"} data-testid="call">
      <header>
        <a class="mono name" href={link("tools", [], { tool: call.name })}>{visible(call.name) || "(no name)"}</a>
        <Facts call={call} now={now} />
      </header>
      {call.arguments !== null && call.arguments !== "" && <Said text={readable(call.arguments)} mono />}
      {failed && <p class="small bad">{failureOf(span)}</p>}
      {call.result !== null && (
        <div class="result" data-testid="result">
          <span class="who">result</span>
          <Said text={call.result} mono />
        </div>
      )}
      {call.artifacts.map((name) => <Artifact key={name} name={name} />)}
    </article>
  );
}

/** The kind of a failure, unless it only says that there was one, and its message. */
function failureOf(span: SpanEntry): string {
  if (denied(span)) return "Denied by a person";
  const kind = textIn(span.attributes, "error.type");
  const told = [kind === "failed" ? null : kind, span.message && visible(span.message)].filter(Boolean).join(", ");
  return told ? `Failed: ${told}` : "Failed";
}

function Facts({ call, now }: { call: Call; now: number }) {
  const { span } = call;
  if (!span) return <span class="muted small">a client's tool: what it did is not seen</span>;
  const attempts = numberIn(span.attributes, "caesura.tool.attempts") ?? 1;
  const person = numberIn(span.attributes, "caesura.person.seconds");
  return (
    <span class="facts">
      {span.end === null ? `running for ${duration(now - span.start)}` : duration(span.end - span.start)}
      {attempts > 1 && <span>{attempts} attempts</span>}
      {person !== null && <span>{duration(person)} of it waiting for a person</span>}
    </span>
  );
}
