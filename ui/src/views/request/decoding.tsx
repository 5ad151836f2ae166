// How fast a request decoded, and what its steps did beside it.
import { useState } from "preact/hooks";
import { link } from "../../app/router";
import { count, counted, duration, moment, number } from "../../format";
import type { Lane } from "../../model/lane";
import type { Trace } from "../../model/trace";
import { around } from "../timeline/zoom";
import { prefills } from "./blockers";
import { type Stretch, slowdown } from "./decode";
import { Companions } from "./holders";

const FIRST = 4;

export function Decoding({ shown, lane, stretches }: { shown: Trace; lane: Lane; stretches: Stretch[] }) {
  const [all, setAll] = useState(false);
  if (!stretches.length) return <p class="small soft">It has not decoded yet.</p>;
  const slowest = [...stretches].sort((a, b) => (b.perToken ?? 0) - (a.perToken ?? 0));
  const listed = all ? stretches : slowest.slice(0, FIRST).sort((a, b) => a.from - b.from);
  return (
    <>
      {listed.map((stretch) => <One key={stretch.from} shown={shown} lane={lane} stretch={stretch} />)}
      {listed.length < stretches.length && (
        <button class="plain" onClick={() => setAll(true)}>Show all {count(stretches.length)} stretches; these are the slowest</button>
      )}
    </>
  );
}

function One({ shown, lane, stretch }: { shown: Trace; lane: Lane; stretch: Stretch }) {
  const [asked, setAsked] = useState(false);
  const { t0, t1 } = around(stretch.from, stretch.until, 0.1);
  return (
    <div class="rq-stretch" data-testid="stretch">
      <div class="dc-wait-head">
        <b>{stretch.perToken === null ? "–" : duration(stretch.perToken)} a token</b>
        <span class="muted">
          {stretch.tokens === null ? "open, " : `${counted(stretch.tokens, "token")} in `}{duration(stretch.until - stretch.from)},{" "}
          <a href={link("timeline", [], { sel: lane.id, t0: String(t0), t1: String(t1) })}>at {moment(stretch.from)}</a>
        </span>
      </div>
      {reasonOf(stretch) && <p class="small soft">{reasonOf(stretch)}</p>}
      {stretch.prefillTokens + stretch.recomputeTokens > 0 && (
        <p>
          <button class="plain dc-ask rq-first" aria-expanded={asked} onClick={() => setAsked(!asked)}>{asked ? "Hide" : "Whose prompts?"}</button>
        </p>
      )}
      {asked && (
        <Companions shown={shown} request={lane.id} from={stretch.from} until={stretch.until} counts={prefills}
          none="No other request was computed: these tokens were its own." />
      )}
    </div>
  );
}

/** Why a token took as long as it did, as far as the steps tell. */
export function reasonOf(stretch: Stretch): string {
  const { beside, steps, stepSeconds, prefillTokens, recomputeTokens, copiedBlocks, usual, full } = stretch;
  if (!steps || beside === null) return "";
  const others = Math.round(beside);
  const done = [
    prefillTokens ? `computed ${counted(prefillTokens, "prefill token")}` : "",
    recomputeTokens ? `recomputed ${counted(recomputeTokens, "token")}` : "",
    copiedBlocks ? `copied ${counted(copiedBlocks, "block")}` : "",
  ].filter(Boolean);
  const also = done.length ? `, and its ${counted(steps, "step")} also ${joined(done)}` : "";
  const slow = slowdown(stretch);
  const together = `with ${counted(others + 1, "request")}`;
  const compared = slow !== null ? `, ${number(slow)} times what is usual here ${together} (${duration(usual)})` : usual ? `, as is usual here ${together}` : "";
  return [
    `${others ? `${count(others)} ${others === 1 ? "other" : "others"} ran beside it` : "No other request ran beside it"}${also}.`,
    stepSeconds === null ? "" : `A step took ${duration(stepSeconds)} on average${compared}.`,
    full ? `${count(full)} of the steps used up their token budget.` : "",
  ].filter(Boolean).join(" ");
}

function joined(parts: string[]): string {
  return parts.length < 2 ? parts.join("") : `${parts.slice(0, -1).join(", ")} and ${parts.at(-1)}`;
}
