// A run: its turns as a transcript, and what they took together.
import { useMemo } from "preact/hooks";
import { count, counted, day, duration } from "../../format";
import { kindOf } from "../../model/failures";
import type { Run } from "../../model/spans";
import type { Trace } from "../../model/trace";
import { PauseChip } from "./chip";
import { visible } from "./content";
import { nameOfRun } from "./names";
import { CriticalPath } from "./path";
import { lastPauseOf, numberIn, textIn, transcriptOf } from "./transcript";
import { TurnCard } from "./turn";

export function RunView({ run, trace, version, now }: { run: Run; trace: Trace; version: number; now: number }) {
  const turns = useMemo(() => transcriptOf(run, trace), [run, trace, version]);
  const { span } = run;
  const sum = (name: string): number => run.turns.reduce((all, turn) => all + (numberIn(turn.attributes, name) ?? 0), 0);
  const last = lastPauseOf(run, trace);
  const made = new Set(turns.flatMap((turn) => turn.calls.flatMap((call) => call.artifacts)));
  const limit = textIn(span.attributes, "caesura.limit");
  return (
    <section class="run" data-testid="run">
      <header class="run-head">
        <h3 class="plainhead">{visible(nameOfRun(run))}</h3>
        <span class="facts">
          <span>{day(span.start)}</span>
          <span>{span.end === null ? <>open for <b>{duration(now - span.start)}</b></> : <b>{duration(span.end - span.start)}</b>}</span>
          <span>{counted(run.turns.length, "turn")}</span>
          <span>{counted(run.calls.length, "call")}</span>
          <span>{count(sum("caesura.appended_tokens"))} tokens in, {count(sum("gen_ai.usage.output_tokens"))} out, {count(sum("gen_ai.usage.cache_read.input_tokens"))} cached</span>
          {span.status === "error" && <span class="bad">{textIn(span.attributes, "error.type") === "cancelled" ? "the client left" : kindOf(span)}{limit && ` (${limit})`}{span.message && `, ${visible(span.message)}`}</span>}
        </span>
      </header>
      <CriticalPath run={run} trace={trace} now={now} />
      <ol class="turns">
        {turns.map((turn, at) => <TurnCard key={turn.span?.span ?? "open"} turn={turn} number={at + 1} made={made} now={now} />)}
      </ol>
      {last && <PauseChip pause={last} now={now} />}
      {!turns.length && <p class="muted small">No turn has ended yet.</p>}
    </section>
  );
}
