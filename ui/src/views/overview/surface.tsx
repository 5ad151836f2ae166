// What lies over a chart: dragging marks a stretch, keys move and scale the window.
import type { Signal } from "@preact/signals";
import { useRef, useState } from "preact/hooks";
import { setWindow, trace, wholeOf } from "../../app/state";
import { duration } from "../../format";
import type { Scale } from "../../model/timemap";
import { moved, zoomed } from "../timeline/zoom";
import { type Bins, binAt } from "./series";

interface Props {
  scale: Scale;
  bins: Bins;
  pointed: Signal<number | null>;
  left: number;
  label: string;
}

/** A stretch that is being marked, in the direction in which that happens. */
interface Mark {
  from: number;
  to: number;
}

/** A press that moves less than this marks nothing, in pixels. */
const STILL = 4;

export function Surface({ scale, bins, pointed, left, label }: Props) {
  const surface = useRef<HTMLDivElement>(null);
  const latest = useRef(scale);
  latest.current = scale;
  const [brush, setBrush] = useState<Mark | null>(null);
  const xOf = (event: PointerEvent): number => {
    const box = (surface.current as HTMLDivElement).getBoundingClientRect();
    return Math.min(Math.max(event.clientX - box.left, 0), box.width);
  };

  const press = (event: PointerEvent): void => {
    if (event.button !== 0) return;
    const target = surface.current as HTMLDivElement;
    const begun = latest.current;
    const start = xOf(event);
    target.setPointerCapture(event.pointerId);
    const move = (now: PointerEvent): void => setBrush(
      Math.abs(xOf(now) - start) < STILL ? null : { from: begun.time(start), to: begun.time(xOf(now)) },
    );
    const release = (now: PointerEvent): void => {
      target.removeEventListener("pointermove", move);
      target.removeEventListener("pointerup", release);
      target.removeEventListener("pointercancel", release);
      setBrush(null);
      if (now.type !== "pointerup" || Math.abs(xOf(now) - start) < STILL) return;
      show({ from: begun.time(start), to: begun.time(xOf(now)) });
    };
    target.addEventListener("pointermove", move);
    target.addEventListener("pointerup", release);
    target.addEventListener("pointercancel", release);
  };

  return (
    <div class="ov-surface" ref={surface} style={{ left: `${left}px` }} tabIndex={0} role="application"
      aria-label={`${label}. Dragging marks a stretch, and so do Shift and the arrow keys; Enter shows it. Arrow keys move, plus and minus zoom, 0 shows all.`}
      onPointerDown={press}
      onPointerMove={(event) => (pointed.value = orNone(binAt(bins, scale.time(xOf(event)))))}
      onPointerLeave={() => (pointed.value = null)}
      onKeyDown={(event) => (marking(event, bins, brush, setBrush) || keyed(event, latest.current)) && event.preventDefault()}
      onBlur={() => setBrush(null)}>
      {pointed.value !== null && <Cursor scale={scale} bins={bins} bin={pointed.value} />}
      {brush && <Brush scale={scale} {...brush} />}
    </div>
  );
}

const orNone = (bin: number): number | null => (bin < 0 ? null : bin);

function Cursor({ scale, bins, bin }: { scale: Scale; bins: Bins; bin: number }) {
  const left = scale.x(bins.edges[bin]);
  return <span class="ov-cursor" style={{ left: `${left}px`, width: `${Math.max(1, scale.x(bins.edges[bin + 1]) - left)}px` }} />;
}

function Brush({ scale, from, to }: Mark & { scale: Scale }) {
  const left = scale.x(Math.min(from, to));
  const width = scale.x(Math.max(from, to)) - left;
  return <span class="ov-brush" style={{ left: `${left}px`, width: `${width}px` }}>{width > 50 && duration(Math.abs(to - from))}</span>;
}

function show({ from, to }: Mark): void {
  if (from !== to) setWindow({ t0: Math.min(from, to), t1: Math.max(from, to) });
}

/** Mark by keys: from the middle of the chart, bin by bin. Whether the key was one of those. */
function marking(event: KeyboardEvent, bins: Bins, brush: Mark | null, set: (mark: Mark | null) => void): boolean {
  if (event.ctrlKey || event.metaKey || event.altKey) return false;
  const by = event.key === "ArrowLeft" ? -1 : event.key === "ArrowRight" ? 1 : 0;
  if (event.shiftKey && by) {
    const last = bins.edges.length - 1;
    const at = brush ? nearest(bins.edges, brush.to) : last >> 1;
    set({ from: brush?.from ?? bins.edges[at], to: bins.edges[Math.min(Math.max(at + by, 0), last)] });
    return true;
  }
  if (!brush || (event.key !== "Enter" && event.key !== "Escape")) return false;
  set(null);
  if (event.key === "Enter") show(brush);
  return true;
}

/** The edge closest to a time: live, the bins have moved on since it was marked. */
function nearest(edges: Float64Array, time: number): number {
  return edges.reduce((best, edge, place) => (Math.abs(edge - time) < Math.abs(edges[best] - time) ? place : best), 0);
}

function keyed(event: KeyboardEvent, scale: Scale): boolean {
  if (event.ctrlKey || event.metaKey || event.altKey) return false;
  const window = { t0: scale.from, t1: scale.to };
  const whole = wholeOf(trace.peek());
  const middle = scale.time(scale.width / 2);
  if (event.key === "ArrowLeft") setWindow(moved(window, scale.map, -0.125, whole));
  else if (event.key === "ArrowRight") setWindow(moved(window, scale.map, 0.125, whole));
  else if (event.key === "+" || event.key === "=") setWindow(zoomed(window, scale.map, middle, 0.5, whole));
  else if (event.key === "-") setWindow(zoomed(window, scale.map, middle, 2, whole));
  else if (event.key === "0") setWindow(null);
  else return false;
  return true;
}
