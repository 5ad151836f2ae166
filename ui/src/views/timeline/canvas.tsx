// The lanes on a canvas that stays in place while a tall element behind it scrolls.
import { effect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { type Window, current, following, selection, timeWindow } from "../../app/state";
import { AXIS } from "./frame";
import { listen } from "./gestures";
import { startPainting } from "./painter";
import { hover, isWithin, rowHeight, rows } from "./store";

export function Lanes() {
  const scroller = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const band = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const stopPainting = startPainting(scroller.current!, canvas.current!);
    const stopListening = listen(scroller.current!, canvas.current!, band.current!);
    const stopScrolling = effect(() => scrollTo(scroller.current!, selection.value));
    const stopSettling = settle(scroller.current!);
    const stopFollowing = effect(() => followDown(scroller.current!));
    return () => {
      stopPainting();
      stopListening();
      stopScrolling();
      stopSettling();
      stopFollowing();
      hover.value = null;
    };
  }, []);
  const height = rows.value.length * rowHeight.value + AXIS;
  return (
    <>
      <div class="tl-scroller" ref={scroller}>
        <div style={{ height: `${height}px` }}>
          <canvas
            ref={canvas} tabIndex={0} role="img"
            aria-label={`Timeline of ${rows.value.length} requests of ${current.value?.recording.title ?? "a recording"}. The selected request's states are in a table beside it.`}
          />
        </div>
        {rows.value.length === 0 && <p class="tl-none muted">No request is like that. Change or clear the filters.</p>}
      </div>
      <div class="tl-band" ref={band} hidden />
    </>
  );
}

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
  if (list.slice(first, behind).some((row) => isWithin(row.lane, window))) return;
  const place = list.findIndex((row) => isWithin(row.lane, window));
  if (place >= 0) scroller.scrollTop = Math.max(0, (place - 1) * rowHeight.peek());
}

/** While the newest is followed, keep the last rows in sight. */
function followDown(scroller: HTMLElement): void {
  rows.value;
  if (following.value) requestAnimationFrame(() => (scroller.scrollTop = scroller.scrollHeight));
}

/** Scroll as little as shows the selected row. */
function scrollTo(scroller: HTMLElement, request: string): void {
  const place = rows.peek().findIndex((row) => row.lane.id === request);
  if (place < 0) return;
  const top = place * rowHeight.peek();
  const room = scroller.clientHeight - AXIS - rowHeight.peek() * 2;
  if (top < scroller.scrollTop) scroller.scrollTop = Math.max(0, top - rowHeight.peek());
  else if (top > scroller.scrollTop + room) scroller.scrollTop = top - room;
}
