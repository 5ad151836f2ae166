// The entries that a recording consists of, and the recording itself.

import type { Attribute, KnownEntry, Prices } from "./record-types";

export * from "./record-types";

/** What an alternative is called in prices. */
export type Alternative = keyof Prices;
export const ALTERNATIVES: readonly Alternative[] = ["preserve", "discard", "swap"];

/** An entry with the id that the store gave it, if it has one. */
export type Entry = KnownEntry & { id?: number };

/** One run of a server or of the simulator, or one imported file of records. */
export interface Recording {
  id: number | string;
  title: string;
  source: string;
  started: number;
  ended: number | null;
  live: boolean;
  entries: number;
  content: boolean;
  about: Record<string, Attribute | undefined>;
  /** Whether the server that the page asks makes it. */
  own?: boolean;
  /** The names of the recordings that it joins, as the address has them. */
  joined?: string;
  /** What a reader wrote about it. */
  note?: string;
  /** Kept whatever the file's bounds on age and size. */
  pinned?: boolean;
  /** Sessions that ended; 0 or missing where that is not known. */
  sessions?: number;
}

/** The recording that `value` describes; missing fields get defaults. */
export function recordingOf(value: Partial<Recording>): Recording {
  return {
    id: value.id ?? "recording",
    title: value.title || `Recording ${value.id ?? ""}`.trim(),
    source: value.source ?? "records",
    started: value.started ?? 0,
    ended: value.ended ?? null,
    live: value.live ?? false,
    entries: value.entries ?? 0,
    content: value.content ?? false,
    about: value.about ?? {},
    own: value.own ?? false,
    note: value.note ?? "",
    pinned: value.pinned ?? false,
    sessions: value.sessions ?? 0,
  };
}
