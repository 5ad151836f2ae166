// How long steps took, as a thin strip over the window that all views share.
import { useMemo } from "preact/hooks";
import { toggle } from "../../app/address";
import { current, scaleFor, timeMap, timeWindow, trace, version, wholeOf } from "../../app/state";
import { useSize } from "../../charts/size";
import { AXIS, TimeChart } from "../../charts/timechart";
import "../../charts/charts.css";
import { duration, short } from "../../format";
import type { Trace } from "../../model/trace";
import { GUTTER } from "../timeline/frame";
import { fullSteps } from "./budget";
import { chartsOf, layersOf } from "./charts";
import { seen, workOf } from "./columns";
import "./memory.css";

const HEIGHT = 62;
const wanted = toggle("tl.steps");

/** Drawn below the timeline's lanes, if it is asked for; nothing where a recording has no single steps. */
export function StepStrip() {
  const shown = trace.value;
  const coarse = current.value?.recording.about.lanes === "coarse";
  if (!shown?.steps.length || coarse || !shown.steps.known.has("seconds")) return null;
  const open = wanted.value;
  return (
    <div class="memory-strip">
      <button class="plain small" aria-expanded={open} onClick={() => (wanted.value = !open)} data-testid="step-strip-toggle">
        {open ? "Hide step times" : "Step times"}
      </button>
      {open && <Strip shown={shown} />}
    </div>
  );
}

function Strip({ shown }: { shown: Trace }) {
  const [frame, { width: whole }] = useSize<HTMLDivElement>();
  const made = version.value;
  const width = Math.max(0, whole - GUTTER);
  const map = timeMap.value;
  const { t0, t1 } = timeWindow.value ?? wholeOf(shown);
  const drawn = useMemo(() => {
    const chart = chartsOf(shown.steps).find((one) => one.id === "seconds");
    if (!chart || !width) return null;
    const columns = workOf(shown.steps, ["seconds"], { map, from: t0, to: t1, buckets: Math.max(1, Math.round(width / 2)) });
    return { x: columns.x, layers: layersOf(chart, columns) };
  }, [shown, made, map, t0, t1, width]);
  const [first, behind] = seen(shown.steps, t0, t1);
  const full = fullSteps(shown.steps, first, behind);
  const longest = duration(shown.steps.get("seconds").subarray(first, behind).reduce((most, one) => Math.max(most, one), 0));
  const said = `Step time, ${longest} at most${full ? `, ${full} steps cut short by their token budget` : ""}`;
  const scale = scaleFor(width);
  return (
    <div class="memory-chart" ref={frame} data-testid="step-strip">
      <div class="memory-legend" title={said}><h3>Step time<span class="memory-unit"> ms</span></h3><p class="small soft">{longest} at most</p></div>
      {drawn && (
        <TimeChart x={drawn.x} layers={drawn.layers} from={map.draw(scale.from)} to={map.draw(scale.to)} top={1} ticks={[]}
          folds={map.folds.map((fold) => ({ from: fold.drawn, to: fold.drawn + map.stub }))}
          format={short} label={said} width={width + AXIS} height={HEIGHT} />
      )}
    </div>
  );
}
