// What all views share: recordings, the time window, the selection, filters, theme, connection.
import { computed, signal } from "@preact/signals";
import type { Recording } from "../model/records";
import { without } from "../model/restarts";
import { Scale, TimeMap } from "../model/timemap";
import { Trace } from "../model/trace";
import type { Source } from "../sources/source";
import { toggle } from "./address";
import { route, setQuery } from "./router";

/** A recording with what has come of it so far. The trace is filled in place. */
export interface Loaded {
  recording: Recording;
  trace: Trace;
  state: "loading" | "ready" | "error";
  /** Entries that have come, and how many there are (0: not known). */
  done: number;
  total: number;
  error: string;
  /** Wall time minus the recording's clock when its last entry came, in seconds. */
  skew: number;
  /** Of several recordings that are shown as one: each of them. */
  parts?: Loaded[];
  /** The connection to it, where it is one of several. */
  link?: { state: "none" | "live" | "reconnecting" | "ended"; text: string };
}

export const source = signal<Source | null>(null);
export const recordings = signal<Recording[]>([]);
/** The recording that is shown; null before it is chosen. */
export const current = signal<Loaded | null>(null);
/** Several recordings that are shown as one, also while one of them is chosen; null: there is only one. */
export const joined = signal<Loaded | null>(null);
/** The one that it is compared with. */
export const other = signal<Loaded | null>(null);
/** Counts batches of entries: views that read a trace depend on it, since traces change in place. */
export const version = signal(0);

/** What the page as a whole is doing. */
export type Phase = "starting" | "key" | "error" | "empty" | "ready";
export const phase = signal<Phase>("starting");
export const problem = signal("");
/** Something that went wrong beside the recording, such as a download; "": nothing. */
export const mishap = signal("");
export const connection = signal<{ state: "none" | "live" | "reconnecting" | "ended"; text: string }>({
  state: "none", text: "",
});

/** The trace that is shown; read `version` too in order to follow its changes. */
export const trace = computed<Trace | null>(() => (version.value, current.value?.trace ?? null));

/** Whether idle times are folded. */
export const folding = toggle("fold", true);
/** Whether the window follows what is live. */
export const following = toggle("follow");

export interface Filters {
  q: string;
  tool: string;
  state: string;
  outcome: string;
}
/** The same object as long as the filters are the same, since much is computed from them. */
export const filters = computed<Filters>(() => {
  const { q = "", tool = "", state = "", outcome = "" } = route.value.query;
  const same = q === last.q && tool === last.tool && state === last.state && outcome === last.outcome;
  return same ? last : (last = { q, tool, state, outcome });
});
let last: Filters = { q: "", tool: "", state: "", outcome: "" };
export const setFilters = (changed: Partial<Filters>): void => setQuery({ ...changed });

/** The selected request. */
export const selection = computed(() => route.value.query.sel ?? "");
export const select = (request: string): void => setQuery({ sel: request, pause: "" });
/** Select a request and the pause of it that began at `pause`. */
export const selectPause = (request: string, pause: number | null): void =>
  setQuery({ sel: request, pause: pause === null ? "" : String(pause) });

/** The time window in seconds; null: all that there is. */
export interface Window {
  t0: number;
  t1: number;
}
export const timeWindow = signal<Window | null>(windowOf(route.peek().query));

function windowOf(query: Record<string, string>): Window | null {
  const t0 = Number.parseFloat(query.t0 ?? "");
  const t1 = Number.parseFloat(query.t1 ?? "");
  return t1 > t0 ? { t0, t1 } : null;
}

let writing: ReturnType<typeof setTimeout> | undefined;
/** Show [t0, t1] in all views; the address follows a moment later. */
export function setWindow(window: Window | null): void {
  timeWindow.value = window;
  clearTimeout(writing);
  writing = setTimeout(settleWindow, 300);
}

/** Bring the address up to the window at once. */
export function settleWindow(): void {
  clearTimeout(writing);
  if (writing === undefined) return;
  writing = undefined;
  const window = timeWindow.peek();
  const digits = (time: number): string => time.toFixed(6).replace(/\.?0+$/, "");
  setQuery(window ? { t0: digits(window.t0), t1: digits(window.t1) } : { t0: "", t1: "" });
}

/** Take the window from an address that was followed. */
export function adoptWindow(query: Record<string, string>): void {
  const wanted = windowOf(query);
  const shown = timeWindow.peek();
  if (wanted?.t0 !== shown?.t0 || wanted?.t1 !== shown?.t1) timeWindow.value = wanted;
}

/** The recording's time at this moment, in seconds: the end of what is there, later while it is live. */
export function nowOf(loaded: Loaded): number {
  const { trace: shown, recording, skew } = loaded;
  if (shown.cut !== Infinity || !recording.live || connection.peek().state !== "live" || shown.empty) return shown.to;
  return Math.max(shown.to, Date.now() / 1000 - skew);
}

/** Counts some seconds while a recording is live: time passes without entries. */
export const beat = signal(0);

/** The map that folds idle times of the current trace. */
export const timeMap = computed<TimeMap>(() => {
  version.value;
  beat.value;
  const loaded = current.value;
  if (!loaded || loaded.trace.empty || !folding.value) return new TimeMap();
  return foldsOf(loaded.trace, nowOf(loaded));
});

/** Fold what is idle for longer than a thirtieth of the busy time, and for 5 s at least, up to `now`. */
export function foldsOf(shown: Trace, now = shown.to): TimeMap {
  const idle = shown.busy.idle(5);
  if (now - shown.to > 5 && !shown.active) idle.push({ from: shown.to, to: now });
  // Without an engine nobody is idle.
  const long = without(idle, shown.parts.flatMap((part) => part.restarts.outages(Math.min(now, part.cut))));
  const cut = long.reduce((sum, gap) => sum + gap.to - gap.from, 0);
  const busy = Math.max(now - shown.from - cut, 1e-3);
  return new TimeMap(long.filter((gap) => gap.to - gap.from > busy / 30), busy / 50);
}

/** The scale of the current window on `width` pixels, as all views with a time axis draw it. */
export function scaleFor(width: number): Scale {
  version.value;
  const window = timeWindow.value ?? wholeOf(trace.value);
  return new Scale(timeMap.value, window.t0, window.t1, width);
}

/** All of a trace, of the current one up to this moment, with a little room at its end. */
export function wholeOf(shown: Trace | null): Window {
  if (!shown || shown.empty) return { t0: 0, t1: 1 };
  const loaded = current.peek();
  const own = loaded?.trace === shown;
  // While nobody is here, and the engine lives, the end stays where it is.
  const goesOn = shown.open || shown.parts.some((part) => part.cut === Infinity && part.restarts.down?.state === "down");
  const end = own && goesOn ? nowOf(loaded) : shown.to;
  const map = own ? timeMap.peek() : new TimeMap();
  return { t0: shown.from, t1: end + Math.max(map.draw(end) - map.draw(shown.from), 1e-3) * 0.01 };
}

/** The time under the pointer in any view with a time axis; null: none. */
export const cursor = signal<number | null>(null);
