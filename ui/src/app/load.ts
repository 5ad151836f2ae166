// Choosing a recording and filling its trace, and what the page says while that goes on.
import { effect } from "@preact/signals";
import { isWallClock } from "../format";
import type { Entry, Recording } from "../model/records";
import { Trace } from "../model/trace";
import { embedded } from "../sources/embedded";
import { ServerSource } from "../sources/server";
import { type Source, Unauthorised } from "../sources/source";
import { broke } from "./boundary";
import { Pace } from "./pace";
import { route } from "./router";
import {
  type Loaded, adoptWindow, connection, current, other, phase, problem, recordings, source, version,
} from "./state";

/** Views are drawn anew this often while history comes in, in milliseconds: drawing would slow it down. */
const WHILE_LOADING = 400;

const running = new Map<"current" | "other", AbortController>();

/** Find out where the recordings are and show the one that the address names. */
export async function start(find: () => Promise<Source> = findSource): Promise<void> {
  try {
    source.value = await find();
  } catch (error) {
    return fail(error);
  }
  await refresh();
  let before: Record<string, string> = {};
  effect(() => {
    const { query } = route.value;
    // Only an address that names another window moves it: the one at hand may be newer than the address.
    if (query.t0 !== before.t0 || query.t1 !== before.t1) adoptWindow(query);
    before = query;
    showChosen();
  });
}

function showChosen(anew = false): void {
  const { rec = "", with: against = "" } = route.peek().query;
  show("current", rec, false, anew);
  show("other", against, true, anew);
}

/** Ask for the list of recordings again; after a new API key, for example. */
export async function refresh(): Promise<void> {
  if (!source.value) return start();
  try {
    recordings.value = await source.value.recordings();
  } catch (error) {
    return fail(error);
  }
  phase.value = recordings.value.length ? "ready" : "empty";
  showChosen(true);
}

/** Milliseconds between looks for the recording of a server that was started again; the last goes on. */
const LOOKS = [1000, 2000, 5000];

/** Ask for the list alone, until a server that was started again has begun another recording. */
async function relist(ended: Recording, signal: AbortSignal): Promise<void> {
  recordings.value = recordings.peek().map((one) => (one.id === ended.id ? { ...one, live: false } : one));
  for (let look = 0; !signal.aborted; look++) {
    try {
      recordings.value = await source.peek()!.recordings();
      if (recordings.peek().some((one) => one.live && one.id !== ended.id)) return;
    } catch (error) {
      if (error instanceof Unauthorised) return fail(error);
      // A server that is away is asked again; the list that is shown stays.
    }
    await new Promise((resolve) => setTimeout(resolve, LOOKS[Math.min(look, LOOKS.length - 1)]));
  }
}

async function findSource(): Promise<Source> {
  if (import.meta.env.DEV) {
    const wanted = new URLSearchParams(location.search).get("sample");
    if (wanted !== null) return (await import("../../tests/sample-source")).sampleSource(Number(wanted) || 40);
  }
  const inside = await embedded(document);
  if (inside?.view && !location.hash) location.hash = inside.view;
  return inside ?? new ServerSource(location.pathname.replace(/\/ui\/.*$/, ""));
}

function chosen(id: string, optional: boolean): Recording | null {
  const list = recordings.peek();
  const named = list.find((one) => String(one.id) === id || (id === "live" && one.live));
  return named ?? (optional ? null : (list[0] ?? null));
}

function show(place: "current" | "other", id: string, optional: boolean, anew: boolean): void {
  const target = place === "current" ? current : other;
  const recording = chosen(id, optional);
  if (!anew && target.peek()?.recording.id === recording?.id) return;
  running.get(place)?.abort();
  if (place === "current") connection.value = { state: "none", text: "" };
  target.value = null;
  if (!recording) return;
  const loaded: Loaded = {
    recording, trace: new Trace(), state: "loading", done: 0, total: recording.entries, error: "", skew: 0,
  };
  target.value = loaded;
  const control = new AbortController();
  running.set(place, control);
  void fill(place, loaded, control.signal);
}

async function fill(place: "current" | "other", loaded: Loaded, signal: AbortSignal): Promise<void> {
  let drawn = -Infinity;
  let measured = false;
  const pace = new Pace(() => {
    drawn = performance.now();
    try {
      version.value += 1;
    } catch (error) {
      broke(error);
    }
  });
  signal.addEventListener("abort", () => pace.stop(), { once: true });
  const changed = (): void => {
    if (!signal.aborted) pace.ask();
  };
  try {
    await source.peek()!.follow(loaded.recording, {
      entries(batch: Entry[], done: number, total: number) {
        if (signal.aborted) return;
        loaded.trace.add(batch);
        if (loaded.state === "loading") {
          [loaded.done, loaded.total] = [done, total];
          if (performance.now() - drawn > WHILE_LOADING) changed();
          return;
        }
        const behind = Date.now() / 1000 - loaded.trace.to;
        loaded.skew = measured ? Math.min(loaded.skew, behind) : behind;
        measured = true;
        changed();
      },
      complete() {
        loaded.state = "ready";
        // Until live entries say more, a server's clock is the reader's, and a simulation's stands still.
        const ahead = Date.now() / 1000 - Math.max(loaded.trace.to, 0);
        loaded.skew = isWallClock(loaded.trace.to) ? Math.min(0, ahead) : ahead;
        changed();
      },
      connection(state, text = "") {
        if (place !== "current" || signal.aborted) return;
        connection.value = { state, text };
        if (state === "ended") void relist(loaded.recording, signal);
      },
    }, signal);
  } catch (error) {
    if (signal.aborted) return;
    if (error instanceof Unauthorised) return fail(error);
    loaded.state = "error";
    loaded.error = wordsOf(error);
    changed();
  }
}

function fail(error: unknown): void {
  phase.value = error instanceof Unauthorised ? "key" : "error";
  problem.value = wordsOf(error);
}

function wordsOf(error: unknown): string {
  return error instanceof Error && error.message ? error.message : "Something in this page broke. Load it again.";
}
