// Recordings in the file itself: an exported page asks nobody for anything.
import { type Entry, type Recording, recordingOf } from "../model/records";
import { breath, entriesOf, slices } from "./entries";
import { type Following, type Source, Trouble } from "./source";

interface Embedded {
  recordings?: (Partial<Recording> & { data?: unknown })[];
  artifacts?: Record<string, { type?: string; base64?: string }>;
  view?: string;
}

export class EmbeddedSource implements Source {
  readonly kind: "export" | "sample";
  readonly download = null;
  /** Where the export wants to be opened, as a hash. */
  readonly view: string | null;
  private readonly known: { recording: Recording; data: Entry[] }[];
  private readonly artifacts: NonNullable<Embedded["artifacts"]>;

  constructor(content: Embedded, kind: "export" | "sample" = "export") {
    this.kind = kind;
    this.view = content.view ?? null;
    this.artifacts = content.artifacts ?? {};
    this.known = (content.recordings ?? []).map((one) => {
      const { data, ...about } = one;
      return { recording: { ...recordingOf(about), live: false }, data: entriesOf(data) };
    });
  }

  async recordings(): Promise<Recording[]> {
    return this.known.map((one) => one.recording);
  }

  async follow(recording: Recording, to: Following, signal: AbortSignal): Promise<void> {
    const data = this.known.find((one) => one.recording === recording)?.data ?? [];
    let done = 0;
    for (const slice of slices(data, 5000)) {
      if (signal.aborted) return;
      done += slice.length;
      to.entries(slice, done, data.length);
      await breath();
    }
    to.complete();
  }

  async artifact(name: string): Promise<Blob> {
    const found = this.artifacts[name.replace(/^.*\/artifacts\//, "")];
    if (!found?.base64) throw new Trouble("This file was not exported.");
    return new Blob([bytesOf(found.base64)], { type: found.type ?? "application/octet-stream" });
  }
}

/** The source that the page's own file holds; null where it holds none. Throws `Trouble`. */
export async function embedded(page: Document): Promise<EmbeddedSource | null> {
  const text = page.getElementById("caesura-data")?.textContent?.trim();
  if (!text) return null;
  try {
    return new EmbeddedSource(JSON.parse(await unpacked(bytesOf(text))) as Embedded);
  } catch {
    throw new Trouble("The recording in this file cannot be read: the file is incomplete. Export it again.");
  }
}

/** The text that was packed with gzip. */
export async function unpacked(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

function bytesOf(base64: string): Uint8Array<ArrayBuffer> {
  const binary = atob(base64.replace(/\s+/g, ""));
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}
