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
import { Joined, Part } from "../model/joined";
import { Lister, take } from "./recordings/list";
import { parse, route, setQuery } from "./router";
import { LIVE, fresh, nameOf, named, usual } from "./sharing/named";
import {
  type Loaded, adoptWindow, connection, current, joined, mishap, other, phase, problem, recordings, source, version,
} from "./state";
import { connectionOf, gather, joinedName, namesIn, together } from "./together";

/** Views are drawn anew this often while history comes in, in milliseconds: drawing would slow it down. */
const WHILE_LOADING = 400;
/** With so many entries half as often, and so on: the more there is, the longer it takes to draw. */
const MANY = 50_000;

const running = new Map<"current" | "other", AbortController>();

let lister: Lister | null = null;

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

/** Show what the address names. It names a recording from then on, so that it does so when it is sent to somebody. */
function showChosen(anew = false): void {
  const { rec = "", with: against = "" } = route.peek().query;
  const list = recordings.peek();
  const chosen = new Set(namesIn(rec).map((name) => named(list, name)).filter((one) => one !== undefined));
  if (chosen.size > 1) return showTogether(followed([...chosen]), against ? named(list, against) : undefined, anew);
  const leaves = joined.peek() !== null;
  joined.value = null;
  const [one] = chosen;
  const wanted = rec ? (one ?? named(list, rec)) : usual(list);
  // One that was deleted meanwhile stays, as far as it was read.
  const kept = !anew && !leaves && !wanted && rec !== LIVE && nameOfShown("current") === rec;
  if (!kept) show("current", wanted, anew || leaves);
  show("other", against ? named(list, against) : undefined, anew);
  if (wanted && rec !== LIVE) setQuery({ rec: nameOf(wanted) });
}

/** A browser keeps six connections to a server, and a live recording holds one. */
const MOST_LIVE = 4;

/** The recordings without live ones that could not be followed, which is said. */
function followed(list: Recording[]): Recording[] {
  const live = list.filter((one) => one.live);
  if (live.length <= MOST_LIVE) return list;
  mishap.value = `${live.length - MOST_LIVE} of ${live.length} live recordings are left out: a browser follows ${MOST_LIVE} at once.`;
  return list.filter((one) => !live.slice(MOST_LIVE).includes(one));
}

/** Show several recordings as one, or the one of them that the address chooses. */
function showTogether(list: Recording[], against: Recording | undefined, anew: boolean): void {
  const name = joinedName(list);
  let whole = joined.peek();
  if (anew || !whole || nameOf(whole.recording) !== name) {
    running.get("current")?.abort();
    whole = together(list);
    current.value = joined.value = whole;
    const control = new AbortController();
    running.set("current", control);
    followAll(whole as Whole, control.signal);
  }
  choosePart(whole);
  show("other", against, anew);
}

/** Show the part that the address chooses, or all of them. */
function choosePart(whole: Loaded): void {
  const { part = "" } = route.peek().query;
  current.value = whole.parts?.find((one) => nameOf(one.recording) === part) ?? whole;
  const shown = current.peek();
  connection.value = shown === whole ? connectionOf(whole.parts ?? []) : (shown?.link ?? { state: "none", text: "" });
}

type Whole = Loaded & { trace: Joined; parts: (Loaded & { trace: Part })[] };

/** Fill all parts at once. What is said of all follows at most as often as the page draws. */
function followAll(whole: Whole, signal: AbortSignal): void {
  const pace = new Pace(() => {
    gather(whole);
    try {
      version.value += 1;
    } catch (error) {
      broke(error);
    }
  });
  signal.addEventListener("abort", () => pace.stop(), { once: true });
  for (const part of whole.parts) {
    void fill(part, signal, {
      pace,
      connected(state, text) {
        part.link = { state, text };
        if (state === "ended") {
          part.trace.close();
          lister?.hurry(part.recording);
        }
        choosePart(whole);
        pace.ask();
      },
      complete() {
        if (!part.recording.live) part.trace.close();
      },
    });
  }
}

const nameOfShown = (place: "current" | "other"): string => {
  const loaded = (place === "current" ? current : other).peek();
  return loaded ? nameOf(loaded.recording) : "";
};

/** Ask for the list of recordings again; after a new API key, for example. */
export async function refresh(): Promise<void> {
  if (!source.value) return start();
  try {
    take(await source.value.recordings());
  } catch (error) {
    return fail(error);
  }
  if (lister?.source !== source.value) {
    lister?.stop();
    lister = source.value.kind === "server" ? new Lister(source.value, fail, arrived) : null;
  }
  phase.value = recordings.value.length ? "ready" : "empty";
  showChosen(true);
  lister?.next();
}

/** Show the recordings of another source, such as a file of the reader's. */
export async function showSource(next: Source): Promise<void> {
  source.value = next;
  recordings.value = [];
  setQuery(fresh(""));
  await refresh();
}

/** Read the list again, since something was changed in it. Throws as the source does. */
export async function reread(): Promise<void> {
  take(await source.peek()!.recordings());
  arrived();
  version.value += 1;
}

/** The list has been read again. */
function arrived(): void {
  if (phase.peek() === "empty" && recordings.peek().length) phase.value = "ready";
  if (phase.peek() === "ready") showChosen();
}

async function findSource(): Promise<Source> {
  if (import.meta.env.DEV) {
    const wanted = new URLSearchParams(location.search).get("sample");
    if (wanted !== null) return (await import("../../tests/sample-source")).sampleSource(Number(wanted) || 40);
  }
  const inside = await embedded(document);
  if (inside?.view && !location.hash) {
    location.hash = inside.view;
    route.value = parse(location.hash);
  }
  return inside ?? new ServerSource(location.pathname.replace(/\/ui\/.*$/, ""));
}

function show(place: "current" | "other", recording: Recording | undefined, anew: boolean): void {
  const target = place === "current" ? current : other;
  if (!anew && nameOfShown(place) === (recording ? nameOf(recording) : "")) return;
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
  const pace = new Pace(() => {
    try {
      version.value += 1;
    } catch (error) {
      broke(error);
    }
  });
  control.signal.addEventListener("abort", () => pace.stop(), { once: true });
  void fill(loaded, control.signal, {
    pace,
    connected(state, text) {
      if (place !== "current") return;
      connection.value = { state, text };
      if (state === "ended") lister?.hurry(recording);
    },
    complete: () => undefined,
  });
}

/** What becomes of what comes in. */
interface Filling {
  pace: Pace;
  connected(state: "live" | "reconnecting" | "ended", text: string): void;
  /** The history is there. */
  complete(): void;
}

async function fill(loaded: Loaded, signal: AbortSignal, { pace, connected, complete }: Filling): Promise<void> {
  let drawn = -Infinity;
  let measured = false;
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
          if (performance.now() - drawn > WHILE_LOADING * (1 + done / MANY)) {
            drawn = performance.now();
            changed();
          }
          return;
        }
        const behind = Date.now() / 1000 - loaded.trace.to;
        loaded.skew = measured ? Math.min(loaded.skew, behind) : behind;
        measured = true;
        changed();
      },
      complete() {
        loaded.state = "ready";
        complete();
        // Until live entries say more, a server's clock is the reader's, and a simulation's stands still.
        const ahead = Date.now() / 1000 - Math.max(loaded.trace.to, 0);
        loaded.skew = isWallClock(loaded.trace.to) ? Math.min(0, ahead) : ahead;
        changed();
      },
      connection(state, text = "") {
        if (!signal.aborted) connected(state, text);
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
  problem.value = error instanceof Unauthorised ? error.message : wordsOf(error);
}

function wordsOf(error: unknown): string {
  return error instanceof Error && error.message ? error.message : "Something in this page broke. Load it again.";
}
