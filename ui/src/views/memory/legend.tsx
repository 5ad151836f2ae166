// The names of a chart's layers, each with its value at the moment that is pointed at.
import type { ReadonlySignal } from "@preact/signals";
import { count, duration, isWallClock, moment, number } from "../../format";
import type { StepColumn } from "../../model/records";
import type { Steps } from "../../model/steps";
import type { Trace } from "../../model/trace";
import { originOf } from "../timeline/ticks";
import { isFull, tokensOf } from "./budget";
import type { Chart } from "./charts";
import type { Holders } from "./holders";
import { REST, valueAt } from "./rests";

/** A chart's title, layers and values at `time`, before which step `row` began; -1: it is before the first step. */
export function Legend({ chart, steps, holders, row, time }: {
  chart: Chart; steps: Steps; holders: Holders | null; row: ReadonlySignal<number>; time: ReadonlySignal<number>;
}) {
  const at = row.value;
  return (
    <div class="memory-legend" data-testid={`legend-${chart.id}`}>
      <h3>{chart.title}{chart.unit && <span class="memory-unit"> {chart.unit}</span>}</h3>
      <dl>
        {[...chart.layers].reverse().map((layer) => (
          <div key={layer.column} title={layer.meaning}>
            <dt><Swatch colour={layer.colour} pattern={layer.pattern} dash={layer.dash} line={layer.kind === "line"} />{layer.name}</dt>
            <dd data-testid={`value-${layer.column}`}>{at < 0 ? "–" : shownAs(layer.column, valueAt(steps, holders, layer.column, at, time.value))}</dd>
          </div>
        ))}
      </dl>
    </div>
  );
}

const shownAs = (column: StepColumn, value: number): string => (column === "seconds" ? duration(value) : number(value));

/** Which step the values are of. */
export function Moment({ trace, row, pointed }: {
  trace: Trace; row: ReadonlySignal<number>; pointed: ReadonlySignal<number | null>;
}) {
  const at = row.value;
  const time = pointed.value;
  const { steps } = trace;
  const resting = time !== null && time > steps.at[at] + steps.columns.seconds[at] + REST;
  return (
    <p class="memory-moment" role="status" data-testid="memory-moment">
      {time === null
        ? <span class="muted">Point at the charts for their values; these are those at the right edge.</span>
        : <>
            <b>{moment(time)}</b>
            {isWallClock(time) && <span>+{duration(time - originOf(trace.from))}</span>}
            {at >= 0 && <span class="soft">{resting ? "at rest after step" : "step"} {at + 1} of {steps.length}, {duration(steps.columns.seconds[at])}</span>}
            {at >= 0 && steps.known.has("budget_tokens") && <span class="soft" data-testid="step-budget">{budgetOf(steps, at)}</span>}
          </>}
    </p>
  );
}

/** How much of its token budget a step used. */
function budgetOf(steps: Steps, row: number): string {
  const used = `${count(tokensOf(steps, row))} of ${count(steps.columns.budget_tokens[row])} tokens`;
  return isFull(steps, row) ? `${used}: cut short by its budget` : used;
}

/** The colour, pattern or line of a layer. */
export function Swatch({ colour, pattern = "plain", dash, line }: {
  colour: string; pattern?: string; dash?: number[]; line: boolean;
}) {
  return (
    <svg class="chart-swatch" width="14" height="12" aria-hidden="true">
      {line
        ? <line x1="0" x2="14" y1="6" y2="6" stroke={`var(${colour})`} stroke-width="2" stroke-dasharray={dash?.join(" ")} />
        : <rect width="14" height="12" rx="2" fill={`var(${colour})`} />}
      {pattern === "hatched" && <path d="M0 12 12 0M-4 8 8 -4M6 14 16 4" class="chart-ink" />}
      {pattern === "crossed" && <path d="M0 12 12 0M2 0 14 12M-4 8 8 -4M6 14 16 4" class="chart-ink" />}
      {pattern === "dotted" && <path d="M3 3h.1M8 3h.1M13 3h.1M5.5 8h.1M10.5 8h.1" class="chart-ink dots" />}
    </svg>
  );
}
