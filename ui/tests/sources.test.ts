// Where recordings come from: a real HTTP server with breaks and errors, and the page's own file.
import { gzipSync } from "node:zlib";
import { type IncomingMessage, type Server, type ServerResponse, createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, describe, expect, it } from "vitest";
import type { Entry } from "../src/model/records";
import { recordingOf } from "../src/model/records";
import { EmbeddedSource, embedded } from "../src/sources/embedded";
import { storeKey } from "../src/sources/key";
import { DocumentReader } from "../src/sources/pieces";
import { ServerSource } from "../src/sources/server";
import { type Following, Trouble, Unauthorised } from "../src/sources/source";
import { EventReader } from "../src/sources/sse";

let server: Server | null = null;
afterEach(async () => {
  storeKey("");
  server?.closeAllConnections();
  await new Promise((resolve) => (server ? server.close(resolve) : resolve(null)));
  server = null;
});

async function serving(answer: (request: IncomingMessage, response: ServerResponse) => void): Promise<ServerSource> {
  server = createServer(answer);
  await new Promise<void>((resolve) => server!.listen(0, "127.0.0.1", resolve));
  return new ServerSource(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
}

const json = (response: ServerResponse, value: unknown, status = 200): void => {
  response.writeHead(status, { "Content-Type": "application/json" });
  response.end(JSON.stringify(value));
};
const gap = (id: number): Entry => ({ id, kind: "gap", at: id });

function collector(): Following & { ids: (number | undefined)[]; states: string[]; completed: number } {
  return {
    ids: [], states: [], completed: 0,
    entries(batch) { this.ids.push(...batch.map((entry) => entry.id)); },
    complete() { this.completed += 1; },
    connection(state) { this.states.push(state); },
  };
}

describe("a server", () => {
  it("is read in pages, then live, and taken up again behind the last entry after a break", async () => {
    const asked: string[] = [];
    let times = 0;
    const source = await serving((request, response) => {
      const url = new URL(request.url!, "http://x");
      if (url.pathname.endsWith("/events")) {
        asked.push(url.searchParams.get("after")!);
        response.writeHead(200, { "Content-Type": "text/event-stream" });
        times += 1;
        if (times === 1) {
          response.write(`: hello\n\nid: 4\ndata: ${JSON.stringify([gap(4)])}\n\n`);
          setTimeout(() => response.destroy(), 30);
        } else response.end(`id: 5\ndata: ${JSON.stringify([gap(5)])}\n\nevent: end\ndata:\n\n`);
        return;
      }
      const after = Number(url.searchParams.get("after"));
      json(response, after ? { entries: [gap(3)], next: null } : { entries: [gap(1), gap(2)], next: 2 });
    });
    const to = collector();
    await source.follow(recordingOf({ id: 7, live: true }), to, new AbortController().signal);
    expect(to.ids).toEqual([1, 2, 3, 4, 5]);
    expect(asked).toEqual(["3", "4"]);
    expect(to.states).toEqual(["live", "reconnecting", "live", "ended"]);
    expect(to.completed).toBe(1);
  });

  it("gets the key, and wants one with 401", async () => {
    const source = await serving((request, response) => {
      if (request.headers.authorization !== "Bearer secret") return json(response, {}, 401);
      json(response, { recordings: [{ id: 1, title: "One" }] });
    });
    await expect(source.recordings()).rejects.toBeInstanceOf(Unauthorised);
    storeKey("secret");
    expect((await source.recordings()).map((one) => one.title)).toEqual(["One"]);
  });

  it("wants another key where the role does not suffice to read, in the server's words", async () => {
    const refused = { error: { message: "GET /v1/trace needs a key with the role view.", code: "role_needed" } };
    const source = await serving((_, response) => json(response, refused, 403));
    await expect(source.recordings()).rejects.toEqual(new Unauthorised("GET /v1/trace needs a key with the role view."));
    await expect(source.remove(recordingOf({ id: 7 }))).rejects.toEqual(new Trouble("GET /v1/trace needs a key with the role view."));
  });

  it("whose answer was cut off is told apart from one that is broken for good", async () => {
    const source = await serving((_, response) => response.end('{"entries": [{"kind"'));
    await expect(source.follow(recordingOf({ id: 7 }), collector(), new AbortController().signal)).rejects.toThrow("it was cut off. Try again");
  });

  it("is quoted where it says what went wrong", async () => {
    const source = await serving((_, response) => json(response, { error: { message: "The file is locked." } }, 503));
    await expect(source.recordings()).rejects.toEqual(new Trouble("The file is locked."));
  });

  it("that does not answer is told with what to do", async () => {
    const source = await serving(() => undefined);
    await new Promise((resolve) => server!.close(resolve));
    await expect(source.recordings()).rejects.toThrow("caesura serve");
  });

  it("is left at once when the reader goes on to something else", async () => {
    let closed = (): void => undefined;
    const gone = new Promise<void>((resolve) => (closed = resolve));
    const source = await serving((request, response) => {
      if (!request.url!.includes("/events")) return json(response, { entries: [], next: null });
      response.writeHead(200).write(": hello\n\n");
      response.on("close", closed);
    });
    const control = new AbortController();
    const to = collector();
    to.connection = () => control.abort();
    await source.follow(recordingOf({ id: 7, live: true }), to, control.signal);
    await gone;
  });
});

describe("events", () => {
  it("are cut out of pieces of any size", () => {
    const text = ": comment\n\nid: 3\nevent: end\ndata: one\ndata: two\n\ndata: äöü\r\n\r\n";
    const reader = new EventReader();
    const found = [...text].flatMap((letter) => reader.feed(letter));
    expect(found).toEqual([{ event: "end", id: "3", data: "one\ntwo" }, { event: "message", id: "", data: "äöü" }]);
  });
});

describe("an exported page", () => {
  const page = (content: string | null): Document => ({ getElementById: () => (content === null ? null : { textContent: content }) }) as unknown as Document;
  const packed = (value: unknown): string => gzipSync(JSON.stringify(value)).toString("base64");

  it("holds its recordings and files", async () => {
    const data = Array.from({ length: 12_000 }, (_, i) => gap(i));
    const source = await embedded(page(packed({
      recordings: [{ id: 1, title: "A", live: true, data }], artifacts: { "a.png": { type: "image/png", base64: "AAEC" } }, view: "#/memory",
    })));
    expect(source!.view).toBe("#/memory");
    const [recording] = await source!.recordings();
    expect(recording.live).toBe(false);
    const to = collector();
    await source!.follow(recording, to, new AbortController().signal);
    expect(to.ids).toHaveLength(12_000);
    const file = await source!.artifact("/artifacts/a.png");
    expect([file.type, [...new Uint8Array(await file.arrayBuffer())]]).toEqual(["image/png", [0, 1, 2]]);
    await expect(source!.artifact("b.png")).rejects.toBeInstanceOf(Trouble);
  });

  it("is read in pieces where it is too large to keep, and each recording gets its own entries", async () => {
    const entry = (i: number): Entry => ({ id: i, kind: "gap", at: i, why: `a "data": [ \\ "quote" ] and an äöü ${i}` });
    const data = (from: number, count: number): Entry[] => Array.from({ length: count }, (_, i) => entry(from + i));
    const content = { recordings: [
      { id: 1, title: "A", about: { data: [[1]], model: "recordings" }, data: data(1, 30_000) }, { id: 2, title: "B", data: [] }, { data: data(50_001, 7), id: 3, title: "C" },
    ], artifacts: { data: { type: "image/png", base64: "AAEC" } } };
    const source = await embedded(page(packed(content)), 1000);
    const list = await source!.recordings();
    expect(list.map((one) => [one.title, one.entries])).toEqual([["A", 30_000], ["B", 0], ["C", 7]]);
    expect(list[0].about).toEqual({ data: [[1]], model: "recordings" });
    for (const [place, ids] of [[2, [50_001, 50_002, 50_003, 50_004, 50_005, 50_006, 50_007]], [1, []]] as const) {
      const to = collector();
      await source!.follow(list[place], to, new AbortController().signal);
      expect([to.ids, to.completed]).toEqual([ids, 1]);
    }
    const to = collector();
    const whys: (string | undefined)[] = [];
    await source!.follow(list[0], { ...to, entries: (batch) => whys.push(...batch.map((one) => (one as { why?: string }).why)) }, new AbortController().signal);
    expect(whys).toEqual(data(1, 30_000).map((one) => (one as { why?: string }).why));
    expect((await source!.artifact("data")).size).toBe(3);
  });

  it("of any cut into pieces is the same document", () => {
    const text = JSON.stringify({ recordings: [{ id: 1, data: [gap(1), { kind: "gap", at: 2, why: "]}\\\" ä" }] }, { id: 2, data: [gap(3)] }], view: "#/x" });
    const bytes = new TextEncoder().encode(text);
    for (const size of [1, 2, 3, 7, 1000]) {
      const found: [number, unknown[]][] = [];
      const reader = new DocumentReader((place, entries) => found.push([place, entries]));
      for (let from = 0; from < bytes.length; from += size) reader.feed(bytes.subarray(from, from + size));
      expect(reader.end()).toEqual({ recordings: [{ id: 1, data: [] }, { id: 2, data: [] }], view: "#/x" });
      expect(found).toEqual([[0, [gap(1), { kind: "gap", at: 2, why: "]}\\\" ä" }]], [1, [gap(3)]]]);
    }
  });

  it("that is larger than a page may be says so, with the command for a stretch of it", async () => {
    const heap = Object.getOwnPropertyDescriptor(performance, "memory");
    Object.defineProperty(performance, "memory", { value: { jsHeapSizeLimit: 1e6 }, configurable: true });
    try {
      const data = Array.from({ length: 20_000 }, (_, i) => gap(i));
      await expect(embedded(page(packed({ recordings: [{ id: 1, data }] })))).rejects.toThrow(/larger than this browser.*caesura trace export --last 10m -o trace\.html/);
    } finally {
      if (heap) Object.defineProperty(performance, "memory", heap);
      else delete (performance as { memory?: unknown }).memory;
    }
  });

  it("is none without the element, and says so where it is cut off", async () => {
    expect(await embedded(page(null))).toBeNull();
    await expect(embedded(page(packed({ recordings: [] }).slice(0, 20)))).rejects.toThrow("Export it again");
  });

  it("drops what is no entry", async () => {
    const source = new EmbeddedSource({ recordings: [{ id: 1, data: [null, 3, { kind: 4 }, gap(9)] }] });
    const to = collector();
    await source.follow((await source.recordings())[0], to, new AbortController().signal);
    expect(to.ids).toEqual([9]);
  });
});
