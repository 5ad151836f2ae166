// What only the timeline knows: its rows, how high they are, what is under the pointer.
import { computed, signal } from "@preact/signals";
import { route } from "../../app/router";
import {
  current, filters, folding, following, selectPause, selection, setWindow, timeMap, timeWindow, trace,
  type Window, version, wholeOf,
} from "../../app/state";
import type { Lane } from "../../model/lane";
import type { Pause } from "../../model/pause";
import { type LaneRow, rowsOf } from "./rows";
import { around, moved, zoomed } from "./zoom";

/** Heights of a row in pixels: to read, and to see many. */
export const ROW_HEIGHTS = { readable: 22, dense: 9 } as const;
export const rowHeight = signal<number>(ROW_HEIGHTS.readable);

export interface Hover {
  /** In pixels from the canvas's corner. */
  x: number;
  y: number;
  time: number;
  lane: Lane;
  /** The pause whose mark is under the pointer. */
  mark: Pause | null;
}
export const hover = signal<Hover | null>(null);

/** Counts seconds while a recording is live: all of it is longer with each. */
export const clock = signal(0);

/** Whether only requests are shown that were here within the window. */
export const withinOnly = signal(false);

const filtered = computed<LaneRow[]>(() => {
  version.value;
  return trace.value ? rowsOf(trace.value, filters.value) : [];
});
export const rows = computed<LaneRow[]>(() => {
  const window = timeWindow.value;
  return withinOnly.value && window ? filtered.value.filter((row) => isWithin(row.lane, window)) : filtered.value;
});

/** Whether a request was here within a window. */
export const isWithin = (lane: Lane, { t0, t1 }: Window): boolean => lane.start < t1 && (lane.end ?? Infinity) > t0;

/** When the selected pause began; null: none is selected. */
export const selectedPause = computed<number | null>(() => {
  const at = Number.parseFloat(route.value.query.pause ?? "");
  return Number.isFinite(at) ? at : null;
});

/** All of the current recording, and the window on it. */
export const whole = (): Window => wholeOf(trace.peek());
export const shownWindow = (): Window => timeWindow.peek() ?? whole();

export function zoomBy(factor: number, time?: number): void {
  const window = shownWindow();
  const map = timeMap.peek();
  const middle = map.time((map.draw(window.t0) + map.draw(window.t1)) / 2);
  const anchor = following.peek() && current.peek()?.recording.live ? window.t1 : (time ?? middle);
  setWindow(zoomed(window, map, anchor, factor, whole()));
}

export function moveBy(share: number): void {
  if (share < 0) following.value = false;
  setWindow(moved(shownWindow(), timeMap.peek(), share, whole()));
}

export function showAll(): void {
  setWindow(null);
}

/** Zoom to the selected request. */
export function showSelected(): void {
  const lane = trace.peek()?.byRequest.get(selection.peek());
  if (lane?.length) setWindow(around(lane.start, lane.end ?? whole().t1));
}

/** Select a request, and one of its pauses. */
export const choose = (request: string, pause: Pause | null = null): void => selectPause(request, pause?.at ?? null);

/** Select a pause and bring its beginning in sight. */
export function goTo(pause: Pause): void {
  choose(pause.request, pause);
  reveal(pause.at, pause.at + (pause.seconds ?? 0));
}

/** Move the window where [from, to] is visible, unless it begins in sight. */
function reveal(from: number, to: number): void {
  const { t0, t1 } = shownWindow();
  if (from >= t0 && from <= t1) return;
  const length = Math.max(t1 - t0, (to - from) * 1.2);
  const all = whole();
  const start = Math.max(Math.min(from - length * 0.25, all.t1 - length), all.t0);
  setWindow({ t0: start, t1: start + length });
}

/** Select the next or the previous request. */
export function step(by: number): void {
  const list = rows.peek();
  if (!list.length) return;
  const place = list.findIndex((row) => row.lane.id === selection.peek());
  const next = place < 0 ? (by > 0 ? 0 : list.length - 1) : Math.min(Math.max(place + by, 0), list.length - 1);
  choose(list[next].lane.id);
}

/** Select the next or the previous pause of the selected request. */
export function stepPause(by: number): void {
  const pauses = trace.peek()?.pausesOf(selection.peek()) ?? [];
  if (!pauses.length) return;
  const at = selectedPause.peek();
  const place = pauses.findIndex((pause) => pause.at === at);
  const next = place < 0 ? (by > 0 ? 0 : pauses.length - 1) : Math.min(Math.max(place + by, 0), pauses.length - 1);
  goTo(pauses[next]);
}

export const toggleWithin = (): void => void (withinOnly.value = !withinOnly.peek());
export const toggleFolding = (): void => void (folding.value = !folding.peek());

/** Follow the newest: the last minute, unless a window is chosen already. */
export function toggleFollowing(): void {
  following.value = !following.peek();
  const { t0, t1 } = whole();
  const map = timeMap.peek();
  const begin = map.draw(t1) - 60;
  if (following.peek() && !timeWindow.peek() && begin > map.draw(t0)) setWindow({ t0: map.time(begin), t1 });
}
