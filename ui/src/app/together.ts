// Several recordings that are shown as one: which they are, and what is said of all of them.
import type { Attribute } from "../model/record-types";
import { largest, smallest } from "../charts/stats";
import { isWallClock, moment } from "../format";
import { Joined, Part } from "../model/joined";
import type { Recording } from "../model/records";
import { nameOf } from "./sharing/named";
import type { Loaded } from "./state";

/** Names of recordings in the address are separated so. */
const BETWEEN = ",";
/** More would take long to read, and the list of servers could not be overlooked. */
export const MOST = 64;

export const namesIn = (rec: string): string[] => [...new Set(rec.split(BETWEEN).filter(Boolean))].slice(0, MOST);
export const joinedName = (list: readonly Recording[]): string => list.map(nameOf).join(BETWEEN);

/** What a recording's server is called: its name, or the title where it has none. */
export function serverOf(one: Recording): string {
  const name = one.about.server;
  return typeof name === "string" && name ? name : one.title;
}

/** What each recording is called among the others: by its server, and by when it began where that is not enough. */
export function labelsOf(list: readonly Recording[]): string[] {
  const names = list.map(serverOf);
  return names.map((name, place) => {
    if (names.filter((other) => other === name).length === 1) return name;
    return `${name}, ${isWallClock(list[place].started) ? moment(list[place].started, 0) : list[place].id}`;
  });
}

/** Recordings by the reader's day on which they began, the newest first; only days with several. */
export function daysOf(list: readonly Recording[]): { day: string; list: Recording[] }[] {
  const days = new Map<string, Recording[]>();
  for (const one of list) {
    if (!isWallClock(one.started) || !one.entries) continue;
    const day = new Date(one.started * 1000).toLocaleDateString(undefined, { day: "numeric", month: "short", year: "numeric" });
    const known = days.get(day);
    if (known) known.push(one);
    else days.set(day, [one]);
  }
  return [...days].map(([day, own]) => ({ day, list: own })).filter(({ list: own }) => own.length > 1 && own.length <= MOST);
}

/** Several recordings as one; `parts` are loaded one by one. */
export function together(list: readonly Recording[]): Loaded & { trace: Joined; parts: Loaded[] } {
  const labels = labelsOf(list);
  const parts = list.map((recording, place): Loaded & { trace: Part } => ({
    recording, trace: new Part(String(recording.id), labels[place]), state: "loading", done: 0, total: recording.entries, error: "", skew: 0,
  }));
  const trace = new Joined(parts.map((part) => part.trace));
  return { recording: joinedRecording(list, labels), trace, parts, state: "loading", done: 0, total: 0, error: "", skew: 0 };
}

/** Bring what is said of all up to what is known of each. */
export function gather(whole: Loaded & { trace: Joined; parts: Loaded[] }): void {
  const { parts } = whole;
  whole.trace.refresh();
  whole.done = parts.reduce((sum, part) => sum + part.done, 0);
  whole.total = parts.reduce((sum, part) => sum + part.total, 0);
  if (parts.every((part) => part.state === "error")) {
    whole.state = "error";
    whole.error = parts[0].error;
  } else if (parts.every((part) => part.state !== "loading")) {
    whole.state = "ready";
  }
  const live = parts.filter((part) => part.recording.live && part.state === "ready");
  whole.skew = smallest((live.length ? live : parts).map((part) => part.skew));
}

/** What is said of the connections to all: the first that is broken, else whether any is live. */
export function connectionOf(parts: readonly Loaded[]): NonNullable<Loaded["link"]> {
  const broken = parts.find((part) => part.link?.state === "reconnecting");
  if (broken) return { state: "reconnecting", text: `${broken.trace.server}: ${broken.link!.text}` };
  if (parts.some((part) => part.link?.state === "live")) return { state: "live", text: "" };
  return { state: parts.some((part) => part.link?.state === "ended") ? "ended" : "none", text: "" };
}

function joinedRecording(list: readonly Recording[], labels: readonly string[]): Recording {
  const sources = new Set(list.map((one) => one.source));
  return {
    id: joinedName(list), joined: joinedName(list), source: sources.size === 1 ? list[0].source : "several",
    title: `${list.length} recordings: ${labels.slice(0, 3).join("; ")}${labels.length > 3 ? "; …" : ""}`,
    started: smallest(list.map((one) => one.started)), content: list.some((one) => one.content), about: common(list),
    get ended() {
      return this.live ? null : largest(list.map((one) => one.ended ?? one.started));
    },
    get live() {
      return list.some((one) => one.live);
    },
    get entries() {
      return list.reduce((sum, one) => sum + one.entries, 0);
    },
  };
}

/** The facts that are the same of all. */
function common([first, ...rest]: readonly Recording[]): Record<string, Attribute | undefined> {
  return Object.fromEntries(Object.entries(first.about).filter(([name, value]) =>
    rest.every((one) => JSON.stringify(one.about[name]) === JSON.stringify(value))));
}
