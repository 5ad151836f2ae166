// Pointer and wheel on the lanes: zoom, drag, zoom to a stretch, hover, choose.
import { cursor, following, selection, setWindow, timeMap, trace } from "../../app/state";
import { Scale } from "../../model/timemap";
import { unfoldAt } from "../request/waits";
import { AXIS, GUTTER } from "./frame";
import { hit, pauseDuring } from "./hit";
import { choose, hover, rowHeight, rows, showSelected, shownWindow, whole, zoomBy } from "./store";
import { moved } from "./zoom";

interface Drag {
  kind: "pan" | "brush";
  x: number;
  y: number;
  scroll: number;
  window: { t0: number; t1: number };
  far: boolean;
}

/** How far the pointer moves before a press becomes a drag, in pixels. */
const SLACK = 4;

/** Listen to `canvas`; `band` shows a stretch that is dragged. Returns how to stop. */
export function listen(scroller: HTMLElement, canvas: HTMLCanvasElement, band: HTMLElement): () => void {
  let drag: Drag | null = null;
  const wide = (): number => canvas.clientWidth - GUTTER;
  const scale = (): Scale => {
    const { t0, t1 } = shownWindow();
    return new Scale(timeMap.peek(), t0, t1, wide());
  };
  const under = (event: PointerEvent) => {
    const shown = trace.peek();
    if (!shown) return null;
    return hit(event.offsetX, event.offsetY, scroller.scrollTop, rowHeight.peek(), rows.peek(), shown, scale());
  };

  const wheel = (event: WheelEvent): void => {
    if (event.offsetX < GUTTER || event.altKey) return;
    event.preventDefault();
    const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
    const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (Math.abs(sideways) > Math.abs(event.shiftKey ? 0 : event.deltaY)) {
      following.value = false;
      setWindow(moved(shownWindow(), timeMap.peek(), (sideways * unit) / wide(), whole()));
    } else {
      zoomBy(Math.exp(Math.max(-120, Math.min(120, event.deltaY * unit)) * 0.0022), scale().time(event.offsetX - GUTTER));
    }
  };

  const down = (event: PointerEvent): void => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    const kind = event.shiftKey || (event.offsetY < AXIS && event.offsetX > GUTTER) ? "brush" : "pan";
    drag = { kind, x: event.offsetX, y: event.offsetY, scroll: scroller.scrollTop, window: shownWindow(), far: false };
  };

  const move = (event: PointerEvent): void => {
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
    if (!ended) return;
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
  canvas.addEventListener("dblclick", twice);
  canvas.addEventListener("pointerleave", leave);
  return () => {
    canvas.removeEventListener("wheel", wheel);
    canvas.removeEventListener("pointerdown", down);
    canvas.removeEventListener("pointermove", move);
    canvas.removeEventListener("pointerup", up);
    canvas.removeEventListener("dblclick", twice);
    canvas.removeEventListener("pointerleave", leave);
  };
}

function showBand(band: HTMLElement, left: number, width: number): void {
  band.hidden = false;
  band.style.left = `${left}px`;
  band.style.width = `${width}px`;
}
