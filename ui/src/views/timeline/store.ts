// What only the timeline knows: its requests and rows, how high they are, what is under the pointer.
import { computed, signal } from "@preact/signals";
import { param, toggle } from "../../app/address";
import { route } from "../../app/router";
import {
  beat, current, filters, folding, following, nowOf, selectPause, selection, setWindow, timeMap, timeWindow, trace,
  type Window, version, wholeOf,
} from "../../app/state";
import type { Lane } from "../../model/lane";
import type { Pause } from "../../model/pause";
import { lanesOf } from "./rows";
import type { More } from "./rows/filter";
import { LAYOUTS, type Layout, type LaneRow, Packing, type Wanted, layoutOf } from "./rows/layout";
import { ORDERS, type Order } from "./rows/order";
import { around, moved, zoomed } from "./zoom";

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
export const withinOnly = toggle("tl.within");
/** How rows are made, and in which order requests come. */
export const wantedLayout = param<Wanted>("tl.rows", "fit");
export const wantedOrder = param<Order>("tl.sort", "arrival");
const order = computed<Order>(() => (ORDERS.includes(wantedOrder.value) ? wantedOrder.value : "arrival"));

/** Filters of the timeline alone, by their names in the address. */
export const MORE = {
  model: param("tl.model", ""), finish: param("tl.finish", ""), error: param("tl.error", ""), failure: param("tl.failure", ""),
  tenant: param("tl.tenant", ""), user: param("tl.user", ""), session: param("tl.session", ""), server: param("tl.server", ""),
  seconds: param("tl.seconds", ""), waited: param("tl.waited", ""), tokens: param("tl.tokens", ""),
};
const least = (text: string): number => Math.max(0, Number.parseFloat(text) || 0);
export const more = computed<More>(() => ({
  model: MORE.model.value, finish: MORE.finish.value, error: MORE.error.value, failure: MORE.failure.value,
  tenant: MORE.tenant.value, user: MORE.user.value, session: MORE.session.value, server: MORE.server.value,
  seconds: least(MORE.seconds.value), waited: least(MORE.waited.value), tokens: least(MORE.tokens.value),
}));

/** Pixels that there are for rows, from top to bottom and from left to right. */
export const room = signal(0);
export const breadth = signal(0);

/** The requests that are shown, in their order. */
export const lanes = computed<Lane[]>(() => {
  version.value;
  beat.value;
  const loaded = current.value;
  if (!loaded) return [];
  const window = withinOnly.value ? timeWindow.value : null;
  const chosen = window ? selection.value : "";
  // Whatever is chosen can be seen, also where it came from another view.
  const admits = window ? (lane: Lane) => isWithin(lane, window) || lane.id === chosen : undefined;
  return lanesOf(loaded.trace, nowOf(loaded), { filters: filters.value, more: more.value, order: order.value, admits });
});
/** Rows depend on the requests alone: moving in time does not pack them anew. */
const packer = new Packing();
const packing = computed<LaneRow[]>(() => packer.of(lanes.value));
const inSight = computed<number>(() => {
  const window = timeWindow.value;
  return window ? lanes.value.reduce((sum, lane) => sum + (isWithin(lane, window) ? 1 : 0), 0) : lanes.value.length;
});
export const layout = computed<Layout>(() => {
  const wanted = LAYOUTS.includes(wantedLayout.value) ? wantedLayout.value : "fit";
  // Asked for only where it decides: else rows would be made anew as the window moves.
  const space = { height: room.value, width: breadth.value, get here(): number { return inSight.value; } };
  const made = layoutOf(lanes.value, wanted, space, order.value !== "arrival", () => packing.value);
  // A request that was chosen has a row.
  const hidden = made.kind === "summed" && wanted === "fit" && selection.value !== "";
  return hidden ? layoutOf(lanes.value, "packed", space, false, () => packing.value) : made;
});
export const rows = computed<LaneRow[]>(() => layout.value.rows);
export const rowHeight = computed<number>(() => layout.value.rowHeight);
/** Whether the newest requests come last. */
export const byArrival = computed(() => order.value === "arrival");

/** Whether a request was here within a window. */
export const isWithin = (lane: Lane, { t0, t1 }: Window): boolean => lane.start < t1 && lane.left > t0;

/** The row that has a request; -1: none. */
export const rowOf = (request: string): number => rows.peek().findIndex((row) => row.lanes.some((lane) => lane.id === request));

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
export function reveal(from: number, to: number): void {
  const { t0, t1 } = shownWindow();
  if (from >= t0 && from <= t1) return;
  const length = Math.max(t1 - t0, (to - from) * 1.2);
  const all = whole();
  const start = Math.max(Math.min(from - length * 0.25, all.t1 - length), all.t0);
  following.value = false;
  setWindow({ t0: start, t1: start + length });
}

/** Select the next or the previous request. */
export function step(by: number): void {
  const list = lanes.peek();
  if (!list.length) return;
  // Beneath one another, as they are drawn.
  const shown = layout.peek().kind === "each" ? rows.peek().map((row) => row.lanes[0]) : list;
  const place = shown.findIndex((lane) => lane.id === selection.peek());
  const next = place < 0 ? (by > 0 ? 0 : shown.length - 1) : Math.min(Math.max(place + by, 0), shown.length - 1);
  choose(shown[next].id);
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
export const nextLayout = (): void =>
  void (wantedLayout.value = LAYOUTS[(LAYOUTS.indexOf(wantedLayout.peek()) + 1) % LAYOUTS.length]);

/** Follow the newest: the last minute, unless a window is chosen already. */
export function toggleFollowing(): void {
  following.value = !following.peek();
  if (following.peek()) showNewest();
}

/** Choose the last minute, unless a window is chosen already. */
export function showNewest(): void {
  const { t0, t1 } = whole();
  const map = timeMap.peek();
  const begin = map.draw(t1) - 60;
  if (!timeWindow.peek() && begin > map.draw(t0)) setWindow({ t0: map.time(begin), t1 });
}
