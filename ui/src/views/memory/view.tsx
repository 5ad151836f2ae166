// Memory: who holds the blocks of the KV cache over time, and what every step is made of.
import { type ReadonlySignal, useComputed, useSignal } from "@preact/signals";
import { useMemo, useState } from "preact/hooks";
import { current, scaleFor, timeMap, timeWindow, trace, version, wholeOf } from "../../app/state";
import { AXIS, TimeChart } from "../../charts/timechart";
import { useSize } from "../../charts/size";
import { count, counted, short } from "../../format";
import { drawnOutages } from "../../model/restarts";
import type { Trace } from "../../model/trace";
import { GUTTER } from "../timeline/frame";
import { originOf, ticks } from "../timeline/ticks";
import { fullSteps } from "./budget";
import { BUDGETS, type Chart, chartsOf, closeTo, layersOf, mostlyFree } from "./charts";
import { type Part, levelsOf, seen, workOf } from "./columns";
import { holdersOf } from "./holders";
import { Legend, Moment } from "./legend";
import "../../charts/charts.css";
import "./memory.css";
import { Pointer } from "./pointer";

/** What stands over and under the charts. */
const REST = 186;

export function MemoryView() {
  const shown = trace.value;
  if (!shown) return null;
  if (!shown.steps.length) return <NoSteps />;
  return <Charts shown={shown} />;
}

function Charts({ shown }: { shown: Trace }) {
  const [frame, size] = useSize<HTMLDivElement>();
  const width = Math.max(0, size.width - GUTTER);
  const made = version.value;
  const coarse = current.value?.recording.about.lanes === "coarse";
  const charts = useMemo(() => chartsOf(shown.steps, coarse), [shown, made, coarse]);
  const roomy = useMemo(() => mostlyFree(shown.steps), [shown, made]);
  const [wanted, setWanted] = useState<boolean | null>(null);
  const free = wanted ?? !roomy;
  const grow = growth(charts, size.height);
  const window = timeWindow.value ?? wholeOf(shown);
  const map = timeMap.value;
  const scale = scaleFor(width);
  const pointed = useSignal<number | null>(null);
  const end = useSignal(window.t1);
  end.value = window.t1;
  const time = useComputed(() => pointed.value ?? end.value);
  const row = useComputed(() => (version.value, shown.steps.indexAt(time.value)));
  const marks = useMemo(
    () => ticks(scale, originOf(shown.from)), [shown, made, map, window.t0, window.t1, width],
  );
  const axis = useMemo(() => ({
    folds: map.folds.map((fold) => ({ from: fold.drawn, to: fold.drawn + map.stub })),
    outages: drawnOutages(shown.restarts, map, window.t1),
    ticks: marks.map((mark) => map.draw(scale.time(mark.x))),
  }), [map, marks, made]);
  const values = { shown, version: made, row, time, part: { map, from: window.t0, to: window.t1, buckets: Math.max(1, Math.round(width / 2)) } };
  return (
    <div class="view memory" data-testid="memory" ref={frame}>
      <div class="memory-head">
        <Moment trace={shown} row={row} pointed={pointed} />
        <button aria-pressed={free} onClick={() => setWanted(!free)} data-testid="memory-free">Draw free blocks</button>
      </div>
      <div class="memory-charts">
        <div class="memory-axis" style={{ marginLeft: `${GUTTER}px` }} aria-hidden="true">
          {marks.filter((mark) => mark.x < width - 30).map((mark) => (
            <span key={mark.since} style={{ left: `${mark.x}px` }}>{mark.clock}<i>{mark.since}</i></span>
          ))}
        </div>
        {width > 0 && charts.map((chart) => (
          <Row key={chart.id} {...values} {...axis} chart={chart} free={free} width={width + AXIS} height={Math.round(chart.height * grow)} />
        ))}
        {width > 0 && <Pointer trace={shown} scale={scale} pointed={pointed} left={GUTTER} />}
      </div>
      <Cut shown={shown} from={window.t0} to={window.t1} />
      <p class="memory-help muted small">
        <kbd>Ctrl</kbd>-wheel zooms, drag moves, <kbd>Shift</kbd>-drag selects, <kbd>0</kbd> shows all, <kbd>,</kbd> <kbd>.</kbd> go
        from step to step; a click opens the timeline there.
        {!charts.some((chart) => chart.id === "host") && " Nothing was swapped: the charts of the host and the link are left out."}
      </p>
    </div>
  );
}

interface RowProps {
  shown: Trace;
  version: number;
  row: ReadonlySignal<number>;
  time: ReadonlySignal<number>;
  part: Part;
  folds: { from: number; to: number }[];
  outages: { from: number; to: number }[];
  ticks: number[];
  chart: Chart;
  free: boolean;
  width: number;
  height: number;
}

function Row({ shown, version: made, row, time, part, folds, outages, ticks: at, chart, free, width, height }: RowProps) {
  const { steps } = shown;
  const holders = holdersOf(shown);
  const { map, from, to, buckets } = part;
  const [x, layers] = useMemo(() => {
    const names = chart.layers.map((layer) => layer.column);
    const columns = chart.from === "work" ? workOf(steps, names, part) : levelsOf(steps, holders, names, part);
    const stacked = layersOf(drawn(chart, free), columns);
    return [columns.x, chart.layers.some((layer) => BUDGETS.has(layer.column)) ? closeTo(stacked) : stacked] as const;
  }, [shown, made, chart, free, map, from, to, buckets]);
  return (
    <section class="memory-chart" aria-label={chart.title}>
      <Legend chart={chart} steps={steps} holders={holders} row={row} time={time} />
      <TimeChart x={x} layers={layers} from={map.draw(from)} to={map.draw(to)} top={1} folds={folds} outages={outages} ticks={at}
        format={short} label={`${chart.title}: ${named(chart)} over time`} width={width} height={height} />
    </section>
  );
}

/** How many steps of the window were cut short by their token budget. */
function Cut({ shown: { steps }, from, to }: { shown: Trace; from: number; to: number }) {
  if (!steps.known.has("budget_tokens")) return null;
  const [first, behind] = seen(steps, from, to);
  const full = fullSteps(steps, first, behind);
  return (
    <p class="memory-help small soft" data-testid="memory-cut">
      {full
        ? `${count(full)} of ${counted(behind - first, "step")} here used up their token budget, so that a prompt was cut or a request was left waiting.`
        : `None of the ${counted(behind - first, "step")} here used up its token budget.`}
    </p>
  );
}

/** Charts grow with the page, up to twice their least height. */
function growth(charts: Chart[], height: number): number {
  const least = charts.reduce((sum, chart) => sum + chart.height, 0);
  return Math.min(2, Math.max(1, (height - REST) / least));
}

/** Without free blocks the others take all of the chart's height. */
const drawn = (chart: Chart, free: boolean): Chart =>
  free ? chart : { ...chart, layers: chart.layers.filter((layer) => layer.column !== "free_blocks") };

const named = (chart: Chart): string => chart.layers.map((layer) => layer.name).join(", ");

function NoSteps() {
  return (
    <div class="center">
      <div class="card panel">
        <h2>No steps in this recording</h2>
        <p>Memory is drawn from the steps of the engine, and this recording holds none: nothing was computed
          while it was made, or it was made from spans alone. Choose another recording above.</p>
      </div>
    </div>
  );
}
