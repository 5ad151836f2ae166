// When the timeline is painted: at most once a frame, whenever something that it shows has changed.
import { effect } from "@preact/signals";
import { broke } from "../../app/boundary";
import {
  beat, connection, current, cursor, following, nowOf, scaleFor, selection, setWindow, timeMap, timeWindow, trace, version,
} from "../../app/state";
import { palette } from "../../app/theme";
import { type Colours, coloursOf } from "./colours";
import { AXIS, GUTTER } from "./frame";
import { paint } from "./paint";
import { breadth, clock, hover, lanes, layout, room, rowHeight, rows, selectedPause } from "./store";

/** Milliseconds between repaints of what only time changes. */
const FRAME = 66;
const CALM_FRAME = 1000;
/** Milliseconds between looks whether the end has become idle. */
const BEAT = 4000;

/** Paint `canvas` until the returned function is called. */
export function startPainting(scroller: HTMLElement, canvas: HTMLCanvasElement): () => void {
  const context = canvas.getContext("2d", { alpha: false })!;
  let colours: Colours | null = null;
  let asked = 0;
  const ask = (): void => {
    asked ||= requestAnimationFrame(() => {
      asked = 0;
      try {
        colours ??= coloursOf(context, devicePixelRatio);
        draw(context, canvas, scroller, colours);
      } catch (error) {
        broke(error);
      }
    });
  };
  const fit = new ResizeObserver(() => {
    size(canvas, scroller);
    colours = null;
    ask();
  });
  fit.observe(scroller);
  scroller.addEventListener("scroll", ask, { passive: true });
  const frames = setInterval(() => advance(ask), matchMedia("(prefers-reduced-motion: reduce)").matches ? CALM_FRAME : FRAME);
  const beats = setInterval(() => (beat.value += isLive() ? 1 : 0), BEAT);
  const seconds = setInterval(() => (clock.value += isLive() ? 1 : 0), 1000);
  const stopTheme = effect(() => {
    palette.value;
    colours = null;
    ask();
  });
  const stopChanges = effect(() => {
    // Sums have no rows that change with the lanes: one layout is like the next.
    for (const one of [version, timeWindow, timeMap, lanes, layout, selection, selectedPause, hover, cursor]) one.value;
    ask();
  });
  return () => {
    cancelAnimationFrame(asked);
    clearInterval(frames);
    clearInterval(beats);
    clearInterval(seconds);
    fit.disconnect();
    scroller.removeEventListener("scroll", ask);
    stopTheme();
    stopChanges();
  };
}

function size(canvas: HTMLCanvasElement, scroller: HTMLElement): void {
  const { clientWidth: width, clientHeight: height } = scroller;
  canvas.width = Math.round(width * devicePixelRatio);
  canvas.height = Math.round(height * devicePixelRatio);
  room.value = Math.max(0, height - AXIS);
  breadth.value = Math.max(0, width - GUTTER);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
}

const isLive = (): boolean => current.peek()?.recording.live === true && connection.peek().state === "live" && !document.hidden;

/** Time passes for what is live, and the window follows it if it is asked to. */
function advance(ask: () => void): void {
  const loaded = current.peek();
  if (!loaded || !isLive()) return;
  const window = timeWindow.peek();
  if (following.peek() && window) {
    const map = timeMap.peek();
    const length = map.draw(window.t1) - map.draw(window.t0);
    const end = map.draw(nowOf(loaded)) + length * 0.03;
    setWindow({ t0: map.time(end - length), t1: map.time(end) });
  }
  ask();
}

function draw(context: CanvasRenderingContext2D, canvas: HTMLCanvasElement, scroller: HTMLElement, colours: Colours): void {
  const loaded = current.peek();
  const shown = trace.peek();
  if (!loaded || !shown || !canvas.width) return;
  const width = canvas.width / devicePixelRatio;
  const live = loaded.recording.live && connection.peek().state === "live";
  const wide = width - GUTTER;
  const scale = scaleFor(wide);
  context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
  paint({
    context, colours, trace: shown, scale, live, width,
    height: canvas.height / devicePixelRatio,
    lanes: lanes.peek(),
    kind: layout.peek().kind,
    rows: rows.peek(),
    rowHeight: rowHeight.peek(),
    scroll: scroller.scrollTop,
    now: nowOf(loaded),
    selected: selection.peek(),
    pause: selectedPause.peek(),
    hovered: hover.peek()?.lane.id ?? "",
    cursor: cursor.peek(),
  });
}
