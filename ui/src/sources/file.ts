// A file of the reader's own: an exported page, JSON or JSON lines. It is read here and sent nowhere.
import type { Entry, Recording } from "../model/records";
import { EmbeddedSource, bytesOf, packedSource } from "./embedded";
import { breath, entriesOf } from "./entries";
import { admit } from "./limits";
import { Trouble } from "./source";

/** How much has been read, from 0 to 1. */
export type Progress = (share: number) => void;

type Held = Partial<Recording> & { data: Entry[] };

/** A text longer than this cannot be held as one by browsers; JSON lines and pages are read in pieces. In bytes. */
const LONGEST = 400e6;
/** What a file begins with is looked at, to tell what it is. In bytes. */
const HEAD = 64_000;
const PIECE = 4_000_000;
const MARK = /<script[^>]*\bid="?caesura-data"?[^>]*>/;

/** The recordings in `file`. Throws `Trouble` with what is wrong with it. */
export async function fileSource(file: File, progress: Progress = () => undefined): Promise<EmbeddedSource> {
  if (!file.size) throw new Trouble(`${file.name} is empty. Choose an exported page, JSON or JSON lines.`);
  const head = (await file.slice(0, HEAD).text()).trimStart();
  if (head.startsWith("\u0000") || head.startsWith("SQLite format 3")) {
    throw new Trouble(`${file.name} is a file of traces itself. Export what is in it: caesura trace export --store ${file.name} -o trace.html`);
  }
  if (head.startsWith("<")) return packedSource(await packedIn(file, progress));
  if (!head.startsWith("{") && !head.startsWith("[")) throw foreign(file);
  if (head.startsWith("[") || isDocument(head)) return new EmbeddedSource(await fromDocument(file, head));
  return new EmbeddedSource({ recordings: await fromLines(file, progress) });
}

/** Whether the text is one JSON object, and not one a line. */
function isDocument(head: string): boolean {
  const [line] = head.split("\n", 1);
  try {
    return typeof (JSON.parse(line) as { kind?: unknown }).kind !== "string";
  } catch {
    // A line that is longer than the beginning of the file says by that what it is.
    return !/^\{\s*"kind"\s*:/.test(line);
  }
}

const foreign = (file: File): Trouble =>
  new Trouble(`${file.name} holds no recording of Caesura. Choose a page, JSON or JSON lines that \`caesura trace export\` wrote, or a file of \`caesura serve --records\`.`);

async function fromDocument(file: File, head: string): Promise<{ recordings: Held[] }> {
  if (/^\{\s*"traceEvents"|^\[\s*\{[^}]*"ph"\s*:/.test(head) || head.includes('"traceEvents"')) {
    throw new Trouble(`${file.name} is a trace for Perfetto: open it at ui.perfetto.dev. For this page export as .html or .jsonl.`);
  }
  if (file.size > LONGEST) throw new Trouble(`${file.name} is too large to be read as JSON. Export it as .jsonl, which is read in pieces.`);
  const found = parsed(await file.text(), file) as { recordings?: unknown; entries?: unknown };
  if (Array.isArray(found?.recordings)) return found as { recordings: Held[] };
  const entries = entriesOf(found?.entries ?? found);
  if (!entries.length) throw foreign(file);
  return { recordings: [{ ...described(file), data: entries }] };
}

/** Each line is an entry; one of kind `recording` begins the next recording. */
async function fromLines(file: File, progress: Progress): Promise<Held[]> {
  const held: Held[] = [];
  let broken = 0;
  const read = (bytes: number): void => {
    admit(bytes);
    progress(bytes / file.size);
  };
  for await (const line of linesOf(file, read)) {
    const entry = lineOf(line);
    if (!entry) broken += 1;
    else if (entry.kind === "recording") held.push({ ...(entry as unknown as Partial<Recording>), data: [] });
    else {
      if (!held.length) held.push({ ...described(file), data: [] });
      held[held.length - 1].data.push(entry as unknown as Entry);
    }
    if (broken > 20 && !held.some((one) => one.data.length)) throw foreign(file);
  }
  if (!held.some((one) => one.data.length)) throw foreign(file);
  return held.map((one) => ({ ...one, ...(one.started === undefined && spanOf(one.data)), entries: one.data.length }));
}

function lineOf(line: string): { kind: string } | null {
  try {
    const entry = JSON.parse(line) as { kind?: unknown } | null;
    return typeof entry?.kind === "string" ? (entry as { kind: string }) : null;
  } catch {
    return null;
  }
}

/** The lines of a file that are not empty, read in pieces. */
async function* linesOf(file: File, read: (bytes: number) => void): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = "";
  for (let from = 0; from < file.size; from += PIECE) {
    const piece = new Uint8Array(await file.slice(from, from + PIECE).arrayBuffer());
    rest += decoder.decode(piece, { stream: from + PIECE < file.size });
    const lines = rest.split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) if (line.trim()) yield line;
    read(Math.min(from + PIECE, file.size));
    await breath();
  }
  if (rest.trim()) yield rest;
}

/** The packed JSON of an exported page, which has it as base64 between two tags. */
async function packedIn(file: File, progress: Progress): Promise<Blob> {
  const packed: Uint8Array<ArrayBuffer>[] = [];
  const decoder = new TextDecoder();
  let text = "";
  let inside = false;
  for (let from = 0; from < file.size; from += PIECE) {
    text += decoder.decode(await file.slice(from, from + PIECE).arrayBuffer(), { stream: true });
    if (!inside) {
      const found = MARK.exec(text);
      // A tag may be cut between two pieces.
      text = found ? text.slice(found.index + found[0].length) : text.slice(-500);
      inside = found !== null;
    }
    if (inside) {
      const end = text.indexOf("<");
      const whole = (end < 0 ? text : text.slice(0, end)).replace(/\s+/g, "");
      const usable = end < 0 ? whole.length - (whole.length % 4) : whole.length;
      if (usable) packed.push(decoded(whole.slice(0, usable), file));
      if (end >= 0) break;
      text = whole.slice(usable);
    }
    progress(Math.min(1, (from + PIECE) / file.size));
    await breath();
  }
  if (!packed.length) {
    throw new Trouble(`${file.name} is a page without a recording. Choose one that \`caesura trace export\` or Export on this page wrote.`);
  }
  return new Blob(packed);
}

function decoded(base64: string, file: File): Uint8Array<ArrayBuffer> {
  try {
    return bytesOf(base64);
  } catch {
    throw new Trouble(`${file.name} is damaged: what it holds is no base64. Export it again.`);
  }
}

function parsed(text: string, file: File): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new Trouble(`${file.name} is no complete JSON. Export it again.`);
  }
}

/** What is said of entries that come without a description. */
const described = (file: File): Partial<Recording> => ({ id: file.name, title: file.name, source: "records" });

/** When entries began and ended, as far as they say so; without it a file of records would be of 1970. */
function spanOf(entries: readonly Entry[]): Partial<Recording> {
  let [from, to] = [Infinity, -Infinity];
  for (const entry of entries) {
    const { at, start } = entry as { at?: unknown; start?: unknown };
    const time = typeof at === "number" ? at : Array.isArray(at) ? (at[0] as unknown) : start;
    if (typeof time !== "number" || !Number.isFinite(time)) continue;
    from = Math.min(from, time);
    to = Math.max(to, time);
  }
  return from <= to ? { started: from, ended: to } : {};
}
