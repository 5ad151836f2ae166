// Files of the reader's own: what they hold, and what is said of wrong ones.
import { gzipSync } from "node:zlib";
import { expect, test } from "vitest";
import type { Entry } from "../src/model/records";
import { fileSource } from "../src/sources/file";
import { ENTRIES } from "./world";

const about = { id: 7, title: "mine", source: "serve", started: 1.7e9, ended: 1.7e9 + 20 };
const file = (name: string, ...parts: string[]): File => new File(parts, name);
const lines = (...entries: object[]): string => entries.map((one) => `${JSON.stringify(one)}\n`).join("");

async function held(name: string, text: string): Promise<[title: string, entries: number][]> {
  const source = await fileSource(file(name, text));
  const found: [string, number][] = [];
  for (const recording of await source.recordings()) {
    let count = 0;
    await source.follow(recording, { entries: (batch: Entry[]) => void (count += batch.length), complete() {}, connection() {} }, new AbortController().signal);
    found.push([recording.title, count]);
  }
  return found;
}

const document = JSON.stringify({ recordings: [{ ...about, data: ENTRIES }] });

test("JSON and JSON lines of an export are read", async () => {
  expect(await held("x.json", document)).toEqual([["mine", ENTRIES.length]]);
  const second = { ...about, kind: "recording", id: 8, title: "other" };
  expect(await held("x.jsonl", lines({ kind: "recording", ...about }, ...ENTRIES, second, ENTRIES[0]))).toEqual([["mine", ENTRIES.length], ["other", 1]]);
});

test("records without a description are called by their file, and dated by themselves", async () => {
  const source = await fileSource(file("records.jsonl", lines(...ENTRIES), "{broken"));
  const [recording] = await source.recordings();
  expect(recording).toMatchObject({ title: "records.jsonl", entries: ENTRIES.length, started: 0, ended: 14, live: false });
});

test("an exported page is read, wherever its pieces are cut", async () => {
  const packed = gzipSync(document).toString("base64").replace(/(.{76})/g, "$1\n");
  const page = `<!doctype html><html>${" ".repeat(4_000_000 - 40)}<script type="text/plain" id="caesura-data">${packed}</script></html>`;
  expect(await held("x.html", page)).toEqual([["mine", ENTRIES.length]]);
});

test.each(["html", "jsonl"])("a .%s with more records than a page may hold is refused, with the command for a stretch of it", async (kind) => {
  const packed = gzipSync(document).toString("base64");
  const text = kind === "html" ? `<script id="caesura-data">${packed}</script>` : lines(...ENTRIES);
  const heap = Object.getOwnPropertyDescriptor(performance, "memory");
  Object.defineProperty(performance, "memory", { value: { jsHeapSizeLimit: 1000 }, configurable: true });
  try {
    await expect(fileSource(file(`x.${kind}`, text))).rejects.toThrow(/larger than this browser.*caesura trace export --last 10m/);
  } finally {
    if (heap) Object.defineProperty(performance, "memory", heap);
    else delete (performance as { memory?: unknown }).memory;
  }
});

test.each<[string, string, RegExp]>([
  ["notes.txt", "Dear diary", /notes.txt holds no recording of Caesura/],
  ["empty.json", "", /empty.json is empty/],
  ["p.json", '{"traceEvents":[]}', /trace for Perfetto: open it at ui.perfetto.dev/],
  ["x.html", "<html><p>Hello</p></html>", /page without a recording/],
  ["x.json", document.slice(0, 400), /no complete JSON/],
  ["x.json", '{"a": 1}', /holds no recording/],
  ["x.html", '<script id="caesura-data">H4sIAAAA</script>', /incomplete/],
  ["t.sqlite", "SQLite format 3\0rest", /Export what is in it/],
])("%s is refused with a reason", async (name, text, reason) => {
  await expect(fileSource(file(name, text))).rejects.toThrow(reason);
});
