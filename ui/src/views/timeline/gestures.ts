// Pointers and wheel on the lanes: scroll, zoom, pinch, drag, zoom to a stretch, hover, choose.
import { cursor, following, scaleFor, selection, setWindow, timeMap, trace } from "../../app/state";
import type { Scale } from "../../model/timemap";
import { unfoldAt } from "../request/waits";
import { AXIS, GUTTER } from "./frame";
import { hit, pauseDuring } from "./hit";
import { choose, hover, layout, rowHeight, rows, showSelected, shownWindow, whole, zoomBy } from "./store";
import { turnOf } from "./wheel";
import { moved, zoomed } from "./zoom";

interface Drag {
  kind: "pan" | "brush";
  x: number;
  y: number;
  scroll: number;
  window: { t0: number; t1: number };
  far: boolean;
}

/** Two fingers: where their middle was, how far they were apart, and what was shown then. */
interface Pinch {
  x: number;
  apart: number;
  time: number;
  window: { t0: number; t1: number };
}

/** How far the pointer moves before a press becomes a drag, in pixels. */
const SLACK = 4;

/** Listen to `canvas`; `band` shows a stretch that is dragged. Returns how to stop. */
export function listen(scroller: HTMLElement, canvas: HTMLCanvasElement, band: HTMLElement): () => void {
  let drag: Drag | null = null;
  let pinch: Pinch | null = null;
  /** The pointers that are down, by their ids: where they are across. */
  const downs = new Map<number, number>();
  const wide = (): number => canvas.clientWidth - GUTTER;
  const scale = (): Scale => scaleFor(wide());
  const under = (event: PointerEvent) => {
    const shown = trace.peek();
    if (!shown || layout.peek().kind === "summed") return null;
    return hit(event.offsetX, event.offsetY, scroller.scrollTop, rowHeight.peek(), rows.peek(), shown, scale());
  };

  const wheel = (event: WheelEvent): void => {
    const turn = turnOf(event);
    if (turn.kind === "scroll") return; // by the browser: the rows are a tall element
    event.preventDefault();
    if (turn.kind === "zoom") return zoomBy(turn.factor, scale().time(Math.max(event.offsetX - GUTTER, 0)));
    following.value = false;
    setWindow(moved(shownWindow(), timeMap.peek(), turn.by / wide(), whole()));
  };

  const middle = (): [x: number, apart: number] => {
    const [a, b] = [...downs.values()];
    return [(a + b) / 2, Math.max(Math.abs(a - b), SLACK)];
  };

  const beginPinch = (): void => {
    const [x, apart] = middle();
    drag = null;
    band.hidden = true;
    following.value = false;
    pinch = { x, apart, time: scale().time(Math.max(x - GUTTER, 0)), window: shownWindow() };
  };

  const movePinch = (begun: Pinch): void => {
    const [x, apart] = middle();
    const closer = zoomed(begun.window, timeMap.peek(), begun.time, begun.apart / apart, whole());
    setWindow(moved(closer, timeMap.peek(), (begun.x - x) / wide(), whole()));
  };

  const down = (event: PointerEvent): void => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    downs.set(event.pointerId, event.offsetX);
    if (downs.size === 2) return beginPinch();
    const kind = event.shiftKey || (event.offsetY < AXIS && event.offsetX > GUTTER) ? "brush" : "pan";
    drag = { kind, x: event.offsetX, y: event.offsetY, scroll: scroller.scrollTop, window: shownWindow(), far: false };
  };

  const move = (event: PointerEvent): void => {
    if (downs.has(event.pointerId)) downs.set(event.pointerId, event.offsetX);
    if (pinch) return downs.size === 2 ? movePinch(pinch) : undefined;
    cursor.value = event.offsetX >= GUTTER ? scale().time(event.offsetX - GUTTER) : null;
    if (!drag) {
      hover.value = under(event);
      canvas.style.cursor = hover.value ? "pointer" : "default";
      return;
    }
    const dx = event.offsetX - drag.x;
    drag.far ||= Math.abs(dx) + Math.abs(event.offsetY - drag.y) > SLACK;
    if (!drag.far) return;
    hover.value = null;
    if (drag.kind === "brush") {
      showBand(band, Math.max(Math.min(drag.x, event.offsetX), GUTTER), Math.abs(dx));
      return;
    }
    canvas.style.cursor = "grabbing";
    if (dx && drag.x >= GUTTER) {
      following.value = false;
      setWindow(moved(drag.window, timeMap.peek(), -dx / wide(), whole()));
    }
    scroller.scrollTop = drag.scroll - (event.offsetY - drag.y);
  };

  const up = (event: PointerEvent): void => {
    const ended = drag;
    drag = null;
    band.hidden = true;
    downs.delete(event.pointerId);
    // Whoever lifts one of two fingers does not choose what is under the other.
    if (!downs.size) pinch = null;
    if (!ended || event.type === "pointercancel") return;
    if (!ended.far) return press(event);
    if (ended.kind !== "brush" || Math.abs(event.offsetX - ended.x) < SLACK) return;
    const [from, to] = [ended.x, event.offsetX].sort((a, b) => a - b).map((x) => scale().time(Math.max(x - GUTTER, 0)));
    following.value = false;
    setWindow({ t0: from, t1: Math.max(to, from + 1e-3) });
  };

  const press = (event: PointerEvent): void => {
    const found = under(event);
    const shown = trace.peek();
    if (found && shown) {
      const during = event.offsetX < GUTTER ? null : pauseDuring(shown.pausesOf(found.lane.id), found.time);
      choose(found.lane.id, found.mark ?? during);
      if (event.offsetX >= GUTTER && !found.mark) unfoldAt(shown, found.lane, found.time);
    } else if (selection.peek() && event.offsetY > AXIS) choose("");
  };

  const twice = (event: MouseEvent): void => {
    if (event.offsetY > AXIS && selection.peek()) showSelected();
  };

  const leave = (): void => {
    hover.value = null;
    cursor.value = null;
  };

  canvas.addEventListener("wheel", wheel, { passive: false });
  canvas.addEventListener("pointerdown", down);
  canvas.addEventListener("pointermove", move);
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  canvas.addEventListener("dblclick", twice);
  canvas.addEventListener("pointerleave", leave);
  return () => {
    canvas.removeEventListener("wheel", wheel);
    canvas.removeEventListener("pointerdown", down);
    canvas.removeEventListener("pointermove", move);
    canvas.removeEventListener("pointerup", up);
    canvas.removeEventListener("pointercancel", up);
    canvas.removeEventListener("dblclick", twice);
    canvas.removeEventListener("pointerleave", leave);
  };
}

function showBand(band: HTMLElement, left: number, width: number): void {
  band.hidden = false;
  band.style.left = `${left}px`;
  band.style.width = `${width}px`;
}
