// The surface over the charts: the moment that is pointed at, zooming, panning, and the way to the timeline.
import type { Signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { go } from "../../app/router";
import { setWindow, wholeOf } from "../../app/state";
import { duration } from "../../format";
import type { Scale } from "../../model/timemap";
import type { Trace } from "../../model/trace";
import { turnOf } from "../timeline/wheel";
import { moved, zoomed } from "../timeline/zoom";

interface Props {
  trace: Trace;
  scale: Scale;
  pointed: Signal<number | null>;
  left: number;
}

/** A press that moves less than this is a click, in pixels. */
const STILL = 4;

/** Takes what the pointer and the keys do; it lies over all charts. */
export function Pointer({ trace, scale, pointed, left }: Props) {
  const surface = useRef<HTMLDivElement>(null);
  const latest = useRef({ trace, scale });
  latest.current = { trace, scale };
  const [brush, setBrush] = useState<{ from: number; to: number } | null>(null);
  useEffect(() => {
    const found = surface.current;
    if (!found) return;
    // Preact's listeners are passive for wheels; this one must keep the page from scrolling.
    const turned = (event: WheelEvent): void => {
      if (turnOf(event).kind === "scroll") return;
      event.preventDefault();
      wheel(event, latest.current.trace, latest.current.scale, event.clientX - found.getBoundingClientRect().left);
    };
    found.addEventListener("wheel", turned, { passive: false });
    return () => found.removeEventListener("wheel", turned);
  }, []);

  const timeOf = (event: PointerEvent): number =>
    scale.time(event.clientX - (surface.current as HTMLDivElement).getBoundingClientRect().left);
  const press = (event: PointerEvent): void => {
    if (event.button !== 0) return;
    const start = event.clientX;
    const begin = latest.current.scale;
    const from = timeOf(event);
    const target = surface.current as HTMLDivElement;
    target.setPointerCapture(event.pointerId);
    const brushing = event.shiftKey;
    let dragged = false;
    const move = (now: PointerEvent): void => {
      dragged ||= Math.abs(now.clientX - start) >= STILL;
      if (!dragged) return;
      if (brushing) setBrush({ from, to: timeOf(now) });
      else setWindow(moved({ t0: begin.from, t1: begin.to }, begin.map, (start - now.clientX) / begin.width, wholeOf(trace)));
    };
    const release = (now: PointerEvent): void => {
      target.removeEventListener("pointermove", move);
      target.removeEventListener("pointerup", release);
      target.removeEventListener("pointercancel", release);
      setBrush(null);
      const to = timeOf(now);
      if (!dragged && now.type === "pointerup") jump(from, begin);
      else if (brushing && to !== from) setWindow({ t0: Math.min(from, to), t1: Math.max(from, to) });
    };
    target.addEventListener("pointermove", move);
    target.addEventListener("pointerup", release);
    target.addEventListener("pointercancel", release);
  };

  return (
    <div class="memory-surface" ref={surface} style={{ left: `${left}px` }} tabIndex={0} role="application"
      data-testid="memory-surface"
      aria-label="Memory over time. Arrow keys move, plus and minus zoom, 0 shows all, comma and point go from step to step, Enter opens the timeline."
      onPointerDown={press}
      onPointerMove={(event) => (pointed.value = timeOf(event))}
      onPointerLeave={() => (pointed.value = null)}
      onKeyDown={(event) => {
        if (keyed(event, latest.current.trace, latest.current.scale, pointed)) event.preventDefault();
      }}>
      <Cursor scale={scale} pointed={pointed} />
      {brush && <Brush scale={scale} {...brush} />}
    </div>
  );
}

function Cursor({ scale, pointed }: { scale: Scale; pointed: Signal<number | null> }) {
  if (pointed.value === null) return null;
  return <span class="memory-cursor" style={{ transform: `translateX(${scale.x(pointed.value)}px)` }} />;
}

function Brush({ scale, from, to }: { scale: Scale; from: number; to: number }) {
  const left = scale.x(Math.min(from, to));
  const width = scale.x(Math.max(from, to)) - left;
  return (
    <span class="memory-brush" style={{ left: `${left}px`, width: `${width}px` }}>
      {width > 60 && duration(Math.abs(to - from))}
    </span>
  );
}

function wheel(event: WheelEvent, trace: Trace, scale: Scale, x: number): void {
  const window = { t0: scale.from, t1: scale.to };
  const turn = turnOf(event);
  if (turn.kind === "move") setWindow(moved(window, scale.map, turn.by / scale.width, wholeOf(trace)));
  if (turn.kind === "zoom") setWindow(zoomed(window, scale.map, scale.time(x), turn.factor, wholeOf(trace)));
}

function keyed(event: KeyboardEvent, trace: Trace, scale: Scale, pointed: Signal<number | null>): boolean {
  if (event.ctrlKey || event.metaKey || event.altKey) return false;
  const window = { t0: scale.from, t1: scale.to };
  const whole = wholeOf(trace);
  const middle = pointed.value ?? scale.time(scale.width / 2);
  if (event.key === "ArrowLeft") setWindow(moved(window, scale.map, -0.125, whole));
  else if (event.key === "ArrowRight") setWindow(moved(window, scale.map, 0.125, whole));
  else if (event.key === "+" || event.key === "=") setWindow(zoomed(window, scale.map, middle, 0.5, whole));
  else if (event.key === "-") setWindow(zoomed(window, scale.map, middle, 2, whole));
  else if (event.key === "0") setWindow(null);
  else if (event.key === "," || event.key === ".") step(trace, middle, event.key === "." ? 1 : -1, pointed);
  else if (event.key === "Enter") jump(middle, scale);
  else return false;
  return true;
}

function step(trace: Trace, time: number, by: number, pointed: Signal<number | null>): void {
  const row = Math.min(Math.max(trace.steps.indexAt(time) + by, 0), trace.steps.length - 1);
  pointed.value = trace.steps.at[row];
}

/** The timeline shows a twentieth of the window around the moment, a tenth of a second at least. */
function jump(time: number, scale: Scale): void {
  const half = Math.max((scale.to - scale.from) / 40, 0.05);
  go("timeline", [], { t0: (time - half).toFixed(6), t1: (time + half).toFixed(6) });
}
