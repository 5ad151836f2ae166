// What bounded a run's end, as a sentence and as marks.
import { counted, duration, percent } from "../../format";
import { STATES } from "../../model/lane";
import { type Link, criticalPath } from "../../model/criticalpath";
import type { Run } from "../../model/spans";
import type { Trace } from "../../model/trace";
import { STATE_NAMES } from "../timeline/shape";
import { visible } from "./content";
import { textIn } from "./transcript";

/** Times between turns and calls that are a smaller part of the run are told in one line. */
const SHORT = 0.01;

const sumOf = (links: readonly Link[]): number => links.reduce((sum, link) => sum + link.to - link.from, 0);

export function CriticalPath({ run, trace, now }: { run: Run; trace: Trace; now: number }) {
  if (!run.turns.length || run.turns.length + run.calls.length < 2) return null;
  const path = criticalPath(run, now);
  const whole = sumOf(path);
  if (!(whole > 0)) return null;
  const short = path.filter((link) => link.kind === "between" && link.to - link.from < SHORT * whole);
  const longest = path.reduce((most, link) => (link.to - link.from > most.to - most.from ? link : most));
  return (
    <details class="path" data-testid="critical-path" open={run.calls.length > 0}>
      <summary class="small">
        Critical path: <b>{nameOf(longest, run)}</b> took {duration(longest.to - longest.from)} of {duration(whole)} ({percent((longest.to - longest.from) / whole)}){besides(longest)}
      </summary>
      <div class="path-bar" role="img" aria-label={path.map((link) => `${nameOf(link, run)} ${duration(link.to - link.from)}`).join(", then ")}>
        {path.map((link) => <i key={link.from} class={`path-${link.kind}${link === longest ? " most" : ""}`} style={{ flexGrow: (link.to - link.from) / whole }} />)}
      </div>
      <ol class="path-list small">
        {path.filter((link) => !short.includes(link)).map((link) => (
          <li key={link.from} class={link === longest ? "most" : ""}>
            <i class={`path-${link.kind}`} aria-hidden="true" />
            <span class="num">{percent((link.to - link.from) / whole)}</span>
            <span>{nameOf(link, run)}{besides(link)}</span>
            <span class="num">{duration(link.to - link.from)}</span>
            <span class="muted">{link.kind === "turn" && doing(link, trace, now)}</span>
          </li>
        ))}
        {short.length > 0 && (
          <li class="muted">
            <i class="path-between" aria-hidden="true" />
            <span class="num">{percent(sumOf(short) / whole)}</span>
            <span>{counted(short.length, "gap")} between turns and calls, none of them {percent(SHORT)}</span>
            <span class="num">{duration(sumOf(short))}</span>
          </li>
        )}
      </ol>
    </details>
  );
}

function nameOf(link: Link, run: Run): string {
  if (link.kind === "between") return "between turns and calls";
  if (link.kind === "turn") return `turn ${run.turns.indexOf(link.span!) + 1}`;
  return visible(textIn(link.span!.attributes, "gen_ai.tool.name") ?? link.span!.name);
}

function besides(link: Link): string {
  if (!link.beside) return "";
  return link.beside === 1 ? ", longer than the call beside it" : `, longest of ${link.beside + 1} calls`;
}

/** What the engine did in a turn, most first. */
function doing(link: Link, trace: Trace, now: number): string {
  const lane = trace.laneOfSpan(link.span!);
  if (!lane) return "";
  const seconds = new Map<string, number>();
  for (let row = Math.max(0, lane.rowAt(link.from)); row < lane.length && lane.at[row] < link.to; row++) {
    const spent = Math.min(lane.until(row, now), link.to) - Math.max(lane.at[row], link.from);
    const name = STATE_NAMES[STATES[lane.state[row]]];
    if (spent > 0) seconds.set(name, (seconds.get(name) ?? 0) + spent);
  }
  return [...seconds].sort((a, b) => b[1] - a[1]).slice(0, 3).map(([name, spent]) => `${name} ${duration(spent)}`).join(", ");
}
