// The strip above the lanes: the whole recording, with the window on it.
import { effect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { type Window, current, folding, nowOf, setWindow, timeMap, timeWindow, version } from "../../app/state";
import { palette } from "../../app/theme";
import { STATES } from "../../model/lane";
import { Scale } from "../../model/timemap";
import { type Colours, coloursOf } from "./colours";
import { LAYERS, density } from "./density";
import { GUTTER } from "./frame";
import { fontOf } from "./font";
import { clock, whole } from "./store";

const HEIGHT = 46;
/** A live recording is counted anew this often, in milliseconds. */
const RECOUNT = 500;

export function Overview() {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => start(canvas.current!), []);
  return (
    <div class="tl-overview">
      <canvas ref={canvas} aria-hidden="true" title="The whole recording: drag to choose a stretch, double-click for all" />
    </div>
  );
}

function start(canvas: HTMLCanvasElement): () => void {
  const context = canvas.getContext("2d", { alpha: false })!;
  let layers: Float64Array[] = [];
  let colours: Colours | null = null;
  let counted = -Infinity;
  let stale = true;
  let asked = 0;
  let timer = 0;
  const scale = (): Scale => new Scale(timeMap.peek(), whole().t0, whole().t1, canvas.clientWidth - GUTTER);
  const draw = (): void => {
    asked = 0;
    const loaded = current.peek();
    if (!loaded || canvas.width === 0) return;
    if (stale && performance.now() - counted >= RECOUNT) {
      layers = density(loaded.trace.lanes, scale(), nowOf(loaded));
      counted = performance.now();
      stale = false;
    } else if (stale && !timer) {
      timer = setTimeout(() => ((timer = 0), ask()), RECOUNT) as unknown as number;
    }
    colours ??= coloursOf(context, devicePixelRatio);
    paint(context, colours, layers, scale());
  };
  const ask = (): void => void (asked ||= requestAnimationFrame(draw));
  const recount = (): void => {
    colours = null;
    stale = true;
    counted = -Infinity;
    ask();
  };
  const fit = new ResizeObserver(() => {
    canvas.width = Math.round(canvas.clientWidth * devicePixelRatio);
    canvas.height = Math.round(HEIGHT * devicePixelRatio);
    recount();
  });
  fit.observe(canvas);
  const stops = [
    effect(() => (void folding.value, void palette.value, void current.value, recount())),
    // All of a live recording grows, also where nothing comes.
    effect(() => (void version.value, void timeMap.value, void clock.value, (stale = true), ask())),
    effect(() => (void timeWindow.value, ask())),
    drags(canvas, scale),
  ];
  return () => {
    cancelAnimationFrame(asked);
    clearTimeout(timer);
    fit.disconnect();
    for (const stop of stops) stop();
  };
}

function paint(context: CanvasRenderingContext2D, colours: Colours, layers: Float64Array[], scale: Scale): void {
  context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
  context.fillStyle = colours.panel;
  context.fillRect(0, 0, scale.width + GUTTER, HEIGHT);
  let most = 1;
  const width = layers[0]?.length ?? 0;
  for (let x = 0; x < width; x++) most = Math.max(most, layers.reduce((sum, layer) => sum + layer[x], 0));
  context.fillStyle = colours.sunken;
  for (const fold of scale.map.folds) context.fillRect(GUTTER + scale.x(fold.from), 0, Math.max(scale.x(fold.to) - scale.x(fold.from), 1), HEIGHT);
  const base = new Float64Array(width).fill(HEIGHT);
  LAYERS.forEach((name, k) => {
    context.fillStyle = colours.state[STATES.indexOf(name)];
    context.beginPath();
    for (let x = 0; x < width; x++) context.lineTo(GUTTER + x, base[x]);
    for (let x = width - 1; x >= 0; x--) context.lineTo(GUTTER + x, (base[x] -= (layers[k][x] / most) * (HEIGHT - 8)));
    context.fill();
  });
  const window = timeWindow.peek();
  if (window) veil(context, colours, scale, window);
  context.fillStyle = colours.ink3;
  context.font = fontOf(10.5);
  context.textBaseline = "alphabetic";
  context.fillText(`requests, at most ${Math.round(most)}`, 12, HEIGHT - 8);
}

/** Pale what is outside of the window. */
function veil(context: CanvasRenderingContext2D, colours: Colours, scale: Scale, window: Window): void {
  const from = GUTTER + Math.max(0, scale.x(window.t0));
  const to = GUTTER + Math.min(scale.width, scale.x(window.t1));
  context.fillStyle = colours.bg;
  context.globalAlpha = 0.72;
  context.fillRect(GUTTER, 0, Math.max(0, from - GUTTER), HEIGHT);
  context.fillRect(to, 0, Math.max(0, GUTTER + scale.width - to), HEIGHT);
  context.globalAlpha = 1;
  context.strokeStyle = colours.accent;
  context.lineWidth = 1.5;
  if (to > GUTTER && from < GUTTER + scale.width) context.strokeRect(from, 1, Math.max(to - from, 2), HEIGHT - 2);
  context.fillRect(0, 0, GUTTER, HEIGHT);
}

/** Dragging inside the window moves it; elsewhere it makes a new one. */
function drags(canvas: HTMLCanvasElement, scale: () => Scale): () => void {
  let begin: { x: number; moves: { t0: number; t1: number } | null } | null = null;
  const time = (x: number): number => scale().time(Math.min(Math.max(x - GUTTER, 0), scale().width));
  const down = (event: PointerEvent): void => {
    canvas.setPointerCapture(event.pointerId);
    const window = timeWindow.peek();
    const at = time(event.offsetX);
    begin = { x: event.offsetX, moves: window && at > window.t0 && at < window.t1 ? window : null };
  };
  const move = (event: PointerEvent): void => {
    if (!begin || Math.abs(event.offsetX - begin.x) < 3) return;
    if (begin.moves) {
      const shown = scale();
      const by = event.offsetX - begin.x;
      setWindow({ t0: shown.time(shown.x(begin.moves.t0) + by), t1: shown.time(shown.x(begin.moves.t1) + by) });
      return;
    }
    const [t0, t1] = [time(begin.x), time(event.offsetX)].sort((a, b) => a - b);
    if (t1 > t0) setWindow({ t0, t1 });
  };
  const up = (): void => void (begin = null);
  const all = (): void => setWindow(null);
  canvas.addEventListener("pointerdown", down);
  canvas.addEventListener("pointermove", move);
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("dblclick", all);
  return () => {
    canvas.removeEventListener("pointerdown", down);
    canvas.removeEventListener("pointermove", move);
    canvas.removeEventListener("pointerup", up);
    canvas.removeEventListener("dblclick", all);
  };
}
