// Recordings in the file itself: an exported page asks nobody for anything.
import { type Entry, type Recording, recordingOf } from "../model/records";
import { breath, entriesOf, slices } from "./entries";
import { admit, tooLong } from "./limits";
import { DocumentReader } from "./pieces";
import { type Following, type Source, Trouble } from "./source";

interface Embedded {
  recordings?: (Partial<Recording> & { data?: unknown })[];
  artifacts?: Record<string, { type?: string; base64?: string }>;
  view?: string;
}

/** Entries of recordings by their places; `entries` may be told in several batches. */
type Read = (take: (recording: number, entries: Entry[]) => void | Promise<void>) => Promise<unknown>;

/** Up to so many bytes of JSON are kept as entries; a larger file is unpacked again when a recording is shown. */
const KEPT_BYTES = 64 * 2 ** 20;
/** Entries that are taken in between two looks at what the reader does. */
const SLICE = 5000;

export class EmbeddedSource implements Source {
  readonly kind: "export" | "sample";
  readonly download = null;
  /** Where the export wants to be opened, as a hash. */
  readonly view: string | null;
  private readonly known: Recording[];
  private readonly artifacts: NonNullable<Embedded["artifacts"]>;
  private readonly read: Read;

  /** `read` tells the entries again where `content` has none. */
  constructor(content: Embedded, kind: "export" | "sample" = "export", read: Read | null = null) {
    this.kind = kind;
    this.view = content.view ?? null;
    this.artifacts = content.artifacts ?? {};
    const held = (content.recordings ?? []).map((one) => entriesOf(one.data));
    this.known = (content.recordings ?? []).map(({ data: _, ...about }, place) => {
      const recording = recordingOf(about);
      return { ...recording, live: false, entries: read ? recording.entries : held[place].length };
    });
    this.read = read ?? (async (take) => {
      for (const [place, entries] of held.entries()) await take(place, entries);
    });
  }

  async recordings(): Promise<Recording[]> {
    return this.known;
  }

  async follow(recording: Recording, to: Following, signal: AbortSignal): Promise<void> {
    const wanted = this.known.indexOf(recording);
    let done = 0;
    await this.read(async (place, entries) => {
      if (place !== wanted) return;
      for (const slice of slices(entries, SLICE)) {
        signal.throwIfAborted();
        done += slice.length;
        to.entries(slice, done, Math.max(recording.entries, done));
        await breath();
      }
    });
    to.complete();
  }

  async artifact(name: string): Promise<Blob> {
    const found = this.artifacts[name.replace(/^.*\/artifacts\//, "")];
    if (!found?.base64) throw new Trouble("This file was not exported.");
    return new Blob([bytesOf(found.base64)], { type: found.type ?? "application/octet-stream" });
  }
}

/** The source that the page's own file holds; null where it holds none. Throws `Trouble`. */
export async function embedded(page: Document, keptBytes = KEPT_BYTES): Promise<EmbeddedSource | null> {
  const element = page.getElementById("caesura-data");
  const text = element?.textContent?.trim();
  if (!element || !text) return null;
  const packed = new Blob([readable(() => bytesOf(text))]);
  element.textContent = ""; // some 100 MB of a large file, which nobody reads again
  return packedSource(packed, keptBytes);
}

/** The source in what an export packs into its page, up to `keptBytes` of JSON kept as entries. Throws `Trouble`. */
export async function packedSource(packed: Blob, keptBytes = KEPT_BYTES): Promise<EmbeddedSource> {
  const kept: Entry[][] = [];
  const counts: number[] = [];
  let bytes = 0;
  const content = (await readPacked(packed, (place, entries) => {
    counts[place] = (counts[place] ?? 0) + entries.length;
    if (bytes <= keptBytes) kept[place] = (kept[place] ?? []).concat(entries);
  }, (size) => (bytes = size))) as Embedded;
  const recordings = (content.recordings ?? []).map((one, place) => ({
    ...one, entries: counts[place] ?? 0, data: bytes <= keptBytes ? kept[place] : [],
  }));
  kept.length = 0;
  const read: Read = (take) => readPacked(packed, take);
  return new EmbeddedSource({ ...content, recordings }, "export", bytes <= keptBytes ? null : read);
}

/** Unpack a file and tell its entries; returns the rest of the document. Throws `Trouble`. */
async function readPacked(
  packed: Blob, take: (recording: number, entries: Entry[]) => void | Promise<void>, sized: (bytes: number) => void = () => {},
): Promise<unknown> {
  let batches: [place: number, entries: Entry[]][] = [];
  const reader = new DocumentReader((place, entries) => batches.push([place, entriesOf(entries)]));
  let bytes = 0;
  for await (const piece of unpacked(packed)) {
    bytes += piece.length;
    admit(bytes);
    sized(bytes);
    readable(() => reader.feed(piece));
    for (const [place, entries] of batches) await take(place, entries);
    batches = [];
  }
  return readable(() => reader.end());
}

/** What `read` returns; its errors are said in words. */
function readable<T>(read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (error instanceof RangeError) throw tooLong();
    throw new Trouble(CUT);
  }
}

const CUT = "The recording in this file cannot be read: the file is incomplete. Export it again.";

/** What was packed with gzip, in pieces. */
async function* unpacked(packed: Blob): AsyncGenerator<Uint8Array> {
  const reader = packed.stream().pipeThrough(new DecompressionStream("gzip")).getReader();
  for (;;) {
    let next: ReadableStreamReadResult<Uint8Array>;
    try {
      next = await reader.read();
    } catch {
      throw new Trouble(CUT);
    }
    if (next.done) return;
    yield next.value;
  }
}

/** Characters of base64 that are decoded at once: a multiple of four. */
const PIECE = 1 << 22;

/** Decode base64. Throws `DOMException` where it is none. */
export function bytesOf(base64: string): Uint8Array<ArrayBuffer> {
  const plain = /\s/.test(base64) ? base64.replace(/\s+/g, "") : base64;
  const bytes = new Uint8Array(Math.ceil((plain.length * 3) / 4));
  let length = 0;
  for (let from = 0; from < plain.length; from += PIECE) {
    const binary = atob(plain.slice(from, from + PIECE));
    for (let i = 0; i < binary.length; i++) bytes[length++] = binary.charCodeAt(i);
  }
  return bytes.subarray(0, length) as Uint8Array<ArrayBuffer>;
}
