// The lanes on a canvas that stays in place while a tall element behind it scrolls.
import { effect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { type Window, current, following, nowOf, selection, timeWindow, trace, wholeOf } from "../../app/state";
import { outagesSaid } from "../../model/restarts";
import { AXIS } from "./frame";
import { listen } from "./gestures";
import { openWell } from "./opening";
import { startPainting } from "./painter";
import { byArrival, hover, isWithin, lanes, layout, reveal, rowHeight, rowOf, rows, withinOnly } from "./store";

/** The times without an engine in the window, which are bands in the picture. */
function deaths(): string {
  const shown = trace.value;
  if (!shown) return "";
  const { t0, t1 } = timeWindow.value ?? wholeOf(shown);
  return outagesSaid(shown.restarts, t0, t1);
}

export function Lanes() {
  const scrolling = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const band = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const scroller = scrolling.current!;
    const stops = [
      startPainting(scroller, canvas.current!), listen(scroller, canvas.current!, band.current!),
      openWell(), showSelection(scroller), settle(scroller), followDown(scroller),
    ];
    return () => {
      for (const stop of stops) stop();
      hover.value = null;
    };
  }, []);
  const height = rows.value.length * rowHeight.value + AXIS;
  return (
    <>
      <div class="tl-scroller" ref={scrolling}>
        <div style={{ height: `${height}px` }}>
          <canvas
            ref={canvas} tabIndex={0} role="img"
            aria-label={`Timeline of ${lanes.value.length} requests of ${current.value?.recording.title ?? "a recording"}${SAID[layout.value.kind]}${deaths()}. The selected request's states are in a table beside it.`}
          />
        </div>
        {lanes.value.length === 0 && <p class="tl-none muted">{withinOnly.value && timeWindow.value ? "No request like that was here within the window. Show all of it (0), or switch “In window” off." : "No request is like that. Change or clear the filters."}</p>}
      </div>
      <div class="tl-band" ref={band} hidden />
    </>
  );
}

const SAID = { each: "", packed: ", several in one row", summed: ", summed up by state" };

/** How long a window must stand before the rows are scrolled to it, in milliseconds. */
const SETTLED = 350;

/** Once the window stands still, scroll to the first request in it, unless one is in sight. */
function settle(scroller: HTMLElement): () => void {
  let timer = 0;
  const stop = effect(() => {
    const window = timeWindow.value;
    clearTimeout(timer);
    if (window) timer = setTimeout(() => showWithin(scroller, window), SETTLED) as unknown as number;
  });
  return () => {
    clearTimeout(timer);
    stop();
  };
}

function showWithin(scroller: HTMLElement, window: Window): void {
  const list = rows.peek();
  const first = Math.floor(scroller.scrollTop / rowHeight.peek());
  const behind = Math.ceil((scroller.scrollTop + scroller.clientHeight - AXIS) / rowHeight.peek());
  const here = ({ lanes: own }: (typeof list)[number]): boolean => own.some((lane) => isWithin(lane, window));
  if (list.slice(first, behind).some(here)) return;
  const place = list.findIndex(here);
  if (place >= 0) scroller.scrollTop = Math.max(0, (place - 1) * rowHeight.peek());
}

/** While the newest is followed, keep the last rows in sight, unless the reader has scrolled away from them. */
function followDown(scroller: HTMLElement): () => void {
  let asked = 0;
  let atEnd = true;
  const down = (): void => {
    asked = 0;
    scroller.scrollTop = scroller.scrollHeight;
  };
  const scrolled = (): void => {
    atEnd = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 2 * rowHeight.peek();
  };
  scroller.addEventListener("scroll", scrolled, { passive: true });
  const stopBeginning = effect(() => {
    if (following.value) atEnd = true;
  });
  const stop = effect(() => {
    rows.value;
    if (following.value && byArrival.value && atEnd && !selection.value) asked ||= requestAnimationFrame(down);
  });
  return () => {
    cancelAnimationFrame(asked);
    scroller.removeEventListener("scroll", scrolled);
    stopBeginning();
    stop();
  };
}

/** Show the selected request once it is there: its row, and its time. */
function showSelection(scroller: HTMLElement): () => void {
  let shown = "";
  return effect(() => {
    const request = selection.value;
    rows.value;
    if (request === shown) return;
    const lane = trace.peek()?.byRequest.get(request);
    const place = lane ? rowOf(request) : -1;
    if (request && place < 0) return; // it may still come
    shown = request;
    const window = timeWindow.peek();
    const loaded = current.peek();
    if (!lane || !loaded) return;
    if (window && !isWithin(lane, window)) reveal(lane.start, lane.end ?? nowOf(loaded));
    scrollTo(scroller, place);
  });
}

/** Scroll as little as shows a row. */
function scrollTo(scroller: HTMLElement, place: number): void {
  const top = place * rowHeight.peek();
  const room = scroller.clientHeight - AXIS - rowHeight.peek() * 2;
  if (top < scroller.scrollTop) scroller.scrollTop = Math.max(0, top - rowHeight.peek());
  else if (top > scroller.scrollTop + room) scroller.scrollTop = top - room;
}
