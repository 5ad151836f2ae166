// The figures over time; dragging over a chart marks a stretch, which is then shown.
import { type Signal, useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { brief, counted, duration, moment, short } from "../../format";
import { secondsTick } from "../../charts/scale";
import { TimeChart } from "../../charts/timechart";
import { useSize } from "../../charts/size";
import { type Outage, drawnOutages, outageSaid, outagesSaid, serversOf } from "../../model/restarts";
import { Scale, type TimeMap } from "../../model/timemap";
import { originOf, ticks } from "../timeline/ticks";
import { type Bins, type Series, answers, binsOf, endings, latencies, throughput } from "./series";
import type { Shown } from "./shown";
import { MEASURES } from "./summary";
import { Surface } from "./surface";

const BINS = 72;
const HEIGHT = 104;
/** Wide enough for a duration. */
const AXIS = 52;
/** The measures that have a chart. */
const DRAWN = ["first-token", "per-token", "end-to-end", "queueing"];

interface Chart {
  id: string;
  title: string;
  meaning: string;
  format: (value: number) => string;
  tick: (value: number) => string;
  series: Series;
}

export function Charts({ trace, ended, t0, t1, map }: Shown & { map: TimeMap }) {
  const bins = useMemo(() => binsOf(map, t0, t1, BINS), [map, t0, t1]);
  const charts = useMemo((): Chart[] => {
    const times = MEASURES.filter(({ id }) => DRAWN.includes(id)).map(({ id, name, meaning, of }) => ({
      id, title: name, meaning, format: (value: number) => duration(value / 1000),
      tick: (value: number) => (value ? secondsTick(value / 1000) : "0"), series: latencies(ended, bins, of),
    }));
    // Of several servers, what only some have recorded would look like that of all.
    const served = trace.http.length > 0 && trace.parts.every((part) => part.http.length || !part.lanes.length);
    const requests = served ? answers(trace.http, bins) : endings(ended, bins);
    const known = trace.parts.filter((part) => part.steps.length).length;
    const some = known < trace.parts.length && known > 0 ? ` of ${known} of ${trace.parts.length} recordings` : "";
    return [
      ...times,
      { id: "tokens", title: `Tokens per second${some}`, meaning: "By what they were computed for", format: short, tick: short, series: throughput(trace.parts.map((part) => part.steps), bins) },
      { id: "requests", title: served ? "Requests to the server" : "Requests that ended", meaning: "By how they ended", format: short, tick: short, series: requests },
    ];
  }, [trace, ended, bins]);
  const outages = useMemo(() => drawnOutages(trace.restarts, map, t1), [trace.version, map, t1]);
  const known = useMemo(() => trace.restarts.outages(t1), [trace.version, t1]);
  const said = outagesSaid(trace.restarts, t0, t1);
  const pointed = useSignal<number | null>(null);
  return (
    <div class="ov-charts">
      {charts.map((chart) => <ChartPanel key={chart.id} chart={chart} bins={bins} map={map} outages={outages} known={known} said={said} origin={trace.from} t0={t0} t1={t1} pointed={pointed} />)}
    </div>
  );
}

interface PanelProps {
  chart: Chart;
  bins: Bins;
  map: TimeMap;
  /** The times without an engine on the drawn axis, as they are, and in words. */
  outages: Outage[];
  known: Outage[];
  said: string;
  origin: number;
  t0: number;
  t1: number;
  /** The bin that is pointed at, in all charts; null: none. */
  pointed: Signal<number | null>;
}

function ChartPanel({ chart, bins, map, outages, known, said, origin, t0, t1, pointed }: PanelProps) {
  const [frame, size] = useSize<HTMLDivElement>();
  const width = Math.max(0, size.width - AXIS);
  const scale = useMemo(() => new Scale(map, t0, t1, width), [map, t0, t1, width]);
  const axis = useMemo(() => ({
    folds: map.folds.map((fold) => ({ from: fold.drawn, to: fold.drawn + map.stub })),
    ticks: width > 0 ? ticks(scale, originOf(origin)).map((tick) => map.draw(scale.time(tick.x))) : [],
  }), [scale]);
  const label = `${chart.title} over time: ${chart.series.values.map((one) => one.name).join(", ")}${said}`;
  return (
    <section class="panel ov-chart" aria-label={chart.title} data-testid={`ov-chart-${chart.id}`}>
      <Legend chart={chart} pointed={pointed} />
      <div class="ov-plot" ref={frame} style={{ height: `${HEIGHT}px` }}>
        {width > 0 && (
          <>
            <TimeChart x={bins.x} layers={chart.series.layers} from={map.draw(t0)} to={map.draw(t1)} top={1}
              folds={axis.folds} outages={outages} ticks={axis.ticks} format={chart.tick} label={label} width={size.width} height={HEIGHT} axis={AXIS} />
            <Outages known={known} scale={scale} t0={t0} t1={t1} />
            <Surface scale={scale} bins={bins} pointed={pointed} left={AXIS} label={label} />
          </>
        )}
      </div>
      <p class="ov-ends muted" aria-hidden="true"><span>{moment(t0, 0)}</span><span>{moment(t1, 0)}</span></p>
    </section>
  );
}

/** Whose engine was dead, at the begin of each band; nothing where there is only one server. */
function Outages({ known, scale, t0, t1 }: { known: readonly Outage[]; scale: Scale; t0: number; t1: number }) {
  const named = known.filter(({ from, to, server }) => server && to >= t0 && from <= t1);
  const servers = serversOf(named);
  return named.map((one) => (
    <span key={`${one.server} ${one.from}`} class="ov-outage" title={outageSaid(one)} data-testid="ov-outage"
      style={{ left: `${AXIS + Math.max(scale.x(one.from), 0)}px`, top: `${8 + 14 * (servers.indexOf(one.server) % 6)}px` }}>{brief(one.server, 24)}</span>
  ));
}

/** The chart's lines by name, with what they are where the pointer is. */
function Legend({ chart, pointed }: { chart: Chart; pointed: Signal<number | null> }) {
  const bin = pointed.value;
  return (
    <div class="ov-legend">
      <h3 title={chart.meaning}>{chart.title}</h3>
      {chart.series.values.map((one) => (
        <span key={one.name}>
          <svg width="14" height="8" aria-hidden="true">
            <line x1="0" x2="14" y1="4" y2="4" stroke={`var(${one.colour})`} stroke-width={one.dash ? 2 : one.pattern ? 7 : 2} stroke-dasharray={one.dash?.join(" ")} />
          </svg>
          {one.name}{bin !== null && <b> {told(chart, one.each[bin])}</b>}
        </span>
      ))}
      {bin !== null && chart.series.samples && <span class="muted">of {counted(chart.series.samples[bin], "request")}</span>}
    </div>
  );
}

const told = (chart: Chart, value: number | null | undefined): string =>
  value === null || value === undefined ? "–" : chart.format(value);
