// Memory and queues of A and B over the same time since their beginnings.
import { useMemo } from "preact/hooks";
import { useSize } from "../../charts/size";
import { AXIS, type Layer, TimeChart } from "../../charts/timechart";
import { counted, short } from "../../format";
import type { StepColumn } from "../../model/records";
import { Scale, TimeMap } from "../../model/timemap";
import type { Trace } from "../../model/trace";
import { chartsOf, layersOf, most } from "../memory/charts";
import { holdersOf } from "../memory/holders";
import { Swatch } from "../memory/legend";
import { type Columns, levelsOf } from "../memory/columns";
import { ticks } from "../timeline/ticks";

interface Side {
  name: "A" | "B";
  trace: Trace;
}

const NAMES = 150;

export function Multiples({ a, b, version }: { a: Trace; b: Trace; version: number }) {
  const [frame, { width: whole }] = useSize<HTMLDivElement>();
  const width = Math.max(0, whole - NAMES - AXIS);
  const length = Math.max(lengthOf(a), lengthOf(b));
  const sides: Side[] = [{ name: "A", trace: a }, { name: "B", trace: b }];
  const scale = new Scale(new TimeMap(), 0, length, width);
  const marks = ticks(scale, 0, 80);
  const at = marks.map((mark) => scale.time(mark.x));
  // Of pools of different sizes each is drawn on its own, or the smaller one would be a line at the bottom.
  const pools = sides.map(({ trace }) => most(trace.steps, ["running_blocks", "paused_blocks", "free_blocks"]));
  const top = Math.max(...pools);
  const alike = Math.min(...pools) > 0.98 * top;
  const waiting = Math.max(...sides.map(({ trace }) => most(trace.steps, ["waiting"])));
  const shared = { length, width, ticks: at, version };
  return (
    <div class="multiples" ref={frame} data-testid="multiples">
      <div class="memory-axis" style={{ marginLeft: `${NAMES + AXIS}px` }} aria-hidden="true">
        {marks.filter((mark) => mark.x < width - 30).map((mark) => <span key={mark.since} style={{ left: `${mark.x}px` }}>{mark.since}</span>)}
      </div>
      {!alike && (
        <p class="muted small" data-testid="pools">
          The pools differ: A had {counted(pools[0], "block")}, B {counted(pools[1], "block")}. Each is drawn on the scale of its own.
        </p>
      )}
      {width > 0 && sides.map((side, at) => <Memory key={`m${side.name}`} {...shared} side={side} top={alike ? top : pools[at]} />)}
      {width > 0 && sides.map((side) => <Queue key={`q${side.name}`} {...shared} side={side} top={waiting} />)}
    </div>
  );
}

interface Shared {
  side: Side;
  length: number;
  width: number;
  top: number;
  ticks: number[];
  version: number;
}

function Memory({ side, ...rest }: Shared) {
  const device = chartsOf(side.trace.steps).find((chart) => chart.id === "device");
  const levels = useLevels(side.trace, rest, device?.layers.map((layer) => layer.column) ?? []);
  const layers = device ? layersOf(device, levels) : [];
  return <Strip {...rest} side={side} x={levels.x} layers={layers} what="device blocks" height={110} />;
}

function Queue({ side, ...rest }: Shared) {
  const known = side.trace.steps.known.has("waiting");
  const levels = useLevels(side.trace, rest, ["waiting"]);
  const colour = `--series-${side.name.toLowerCase()}`;
  const layers: Layer[] = known ? [{ name: "waiting", values: levels.of.waiting ?? [], kind: "area", colour }] : [];
  return <Strip {...rest} side={side} x={levels.x} layers={layers} what="waiting requests" height={80} />;
}

function useLevels(trace: Trace, { length, width, version }: Omit<Shared, "side">, names: StepColumn[]): Columns {
  return useMemo(() => {
    const part = { map: new TimeMap(), from: trace.from, to: trace.to, buckets: Math.max(1, Math.round(width / 2)) };
    const levels = levelsOf(trace.steps, holdersOf(trace), names, part);
    return { ...levels, x: levels.x.map((time) => time - trace.from) };
  }, [trace, length, width, version, names.join()]);
}

function Strip({ side, x, layers, what, height, length, width, top, ticks: at }: Shared & {
  x: number[]; layers: Layer[]; what: string; height: number;
}) {
  return (
    <section class="memory-chart" aria-label={`${what} of ${side.name}`}>
      <div class="multiples-name">
        <span class={`badge ${side.name.toLowerCase()}`}>{side.name}</span> <span class="soft small">{what}</span>
        {layers.length > 1 && layers.map((layer) => (
          <span key={layer.name} class="multiples-layer"><Swatch colour={layer.colour} pattern={layer.pattern} line={false} />{layer.name}</span>
        ))}
      </div>
      {layers.length
        ? <TimeChart x={x} layers={layers} from={0} to={length} ticks={at} folds={[]} top={top} format={short}
            label={`${what} of ${side.name} over time`} width={width + AXIS} height={height} />
        : <p class="muted small">The recording of {side.name} has no such column of steps.</p>}
    </section>
  );
}

const lengthOf = (trace: Trace): number => Math.max(trace.to - trace.from, 1e-3);
