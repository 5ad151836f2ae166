// Where recordings come from: a server, or the file that the page stands in.
import type { Entry, Recording } from "../model/records";

/** How a recording is coming in. */
export interface Following {
  /** More entries, in order. `done` of `total` have come so far; total is 0 where it is not known. */
  entries(batch: Entry[], done: number, total: number): void;
  /** The whole history is there; what follows is live. */
  complete(): void;
  /** The connection to a live recording: up, or broken and tried again. */
  connection(state: "live" | "reconnecting" | "ended", text?: string): void;
}

/** What can be changed of a recording. */
export interface RecordingChange {
  title?: string;
  note?: string;
  pinned?: boolean;
}

export interface Source {
  readonly kind: "server" | "export" | "sample";
  /** Newest first. Throws `Unauthorised` or `Trouble`. */
  recordings(): Promise<Recording[]>;
  /** Read a recording and follow it while it is live, until `signal` aborts. Throws as above. */
  follow(recording: Recording, to: Following, signal: AbortSignal): Promise<void>;
  /** A file that a tool has made, by its name or "/artifacts/NAME". Throws as above. */
  artifact(name: string): Promise<Blob>;
  /** Download `recording` as "export" (HTML) or "perfetto"; null where that is not offered. */
  download: ((recording: Recording, format: "export" | "perfetto") => Promise<Blob>) | null;
  /** Change a recording, or delete it; missing where that is not offered. Both throw as above. */
  change?(recording: Recording, changed: RecordingChange): Promise<void>;
  remove?(recording: Recording): Promise<void>;
}

/** The server wants another API key; the message says why, where it has said so. */
export class Unauthorised extends Error {
  override name = "Unauthorised";
}

/** Something that the reader can do something about, in a sentence that says what. */
export class Trouble extends Error {
  override name = "Trouble";
}
