// Recordings of a server: history in pages, then live events, taken up again after a break.
import { type Entry, type Recording, recordingOf } from "../model/records";
import { entriesOf } from "./entries";
import { storedKey } from "./key";
import { admit, tooLong } from "./limits";
import { type Following, type RecordingChange, type Source, Trouble, Unauthorised } from "./source";
import { EventReader } from "./sse";

const PAGE = 5000;
/** A page with more bytes is asked for in smaller ones: a browser's texts end at 512 MB. */
const LONGEST_PAGE = 2 ** 28;
const LONGEST_WAIT = 15;
/** The server says something every 15 s; longer silence is a broken connection. In seconds. */
const SILENCE = 40;

export class ServerSource implements Source {
  readonly kind = "server";
  /** Where /v1 and /artifacts stand, without a slash at its end. */
  readonly base: string;

  constructor(base: string) {
    this.base = base;
  }

  async recordings(): Promise<Recording[]> {
    const answer = (await (await this.get("/v1/trace")).json()) as { recordings?: Partial<Recording>[] };
    return (answer.recordings ?? []).map(recordingOf);
  }

  async follow(recording: Recording, to: Following, signal: AbortSignal): Promise<void> {
    let after = await this.history(recording, to, signal);
    to.complete();
    if (!recording.live) return;
    for (let wait = 0.5; !signal.aborted; ) {
      const before = after;
      try {
        const ended = await this.live(recording, to, signal, (id) => (after = id), () => after);
        if (ended) return to.connection("ended");
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Unauthorised) throw error;
      }
      if (signal.aborted) return;
      if (after !== before) wait = 0.5;
      to.connection("reconnecting", `The connection broke; the next try is in ${Math.ceil(wait)} s.`);
      await sleep(wait, signal);
      wait = Math.min(wait * 2, LONGEST_WAIT);
    }
  }

  async artifact(name: string): Promise<Blob> {
    return (await this.get(`/artifacts/${encodeURIComponent(name.replace(/^.*\/artifacts\//, ""))}`)).blob();
  }

  readonly download = async (recording: Recording, format: "export" | "perfetto"): Promise<Blob> =>
    (await this.get(`${path(recording)}/${format}`)).blob();

  async change(recording: Recording, changed: RecordingChange): Promise<void> {
    await this.get(path(recording), undefined, "PATCH", JSON.stringify(changed));
  }

  async remove(recording: Recording): Promise<void> {
    await this.get(path(recording), undefined, "DELETE");
  }

  private async history(recording: Recording, to: Following, signal: AbortSignal): Promise<number> {
    let after = 0;
    let done = 0;
    let bytes = 0;
    let limit = PAGE;
    for (;;) {
      const answer = await this.get(`${path(recording)}?after=${after}&limit=${limit}`, signal);
      const packed = await answer.arrayBuffer();
      if (packed.byteLength > LONGEST_PAGE) {
        if (limit === 1) throw tooLong();
        limit = Math.ceil(limit / 10);
        continue;
      }
      bytes += packed.byteLength;
      admit(bytes);
      const page = pageOf(packed);
      const entries = entriesOf(page.entries);
      for (const entry of entries) after = Math.max(after, entry.id ?? 0);
      done += entries.length;
      to.entries(entries, done, Math.max(recording.entries, done));
      if (page.next === null || page.next === undefined || signal.aborted) return after;
      after = page.next;
    }
  }

  /** Read events until the stream ends; whether it said that nothing more will come. */
  private async live(
    recording: Recording, to: Following, signal: AbortSignal, seen: (id: number) => void, after: () => number,
  ): Promise<boolean> {
    const attempt = new AbortController();
    const cancel = (): void => attempt.abort();
    signal.addEventListener("abort", cancel);
    let watch = setTimeout(cancel, SILENCE * 1000);
    try {
      const answer = await this.get(`${path(recording)}/events?after=${after()}`, attempt.signal);
      to.connection("live");
      const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
      const events = new EventReader();
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return false;
        clearTimeout(watch);
        watch = setTimeout(cancel, SILENCE * 1000);
        for (const event of events.feed(value)) {
          if (event.event === "end") return true;
          if (!event.data) continue;
          to.entries(eventOf(event.data), 0, 0);
          if (event.id) seen(Number(event.id));
        }
      }
    } finally {
      clearTimeout(watch);
      signal.removeEventListener("abort", cancel);
      attempt.abort();
    }
  }

  private async get(path: string, signal?: AbortSignal, method = "GET", body?: string): Promise<Response> {
    const key = storedKey();
    const headers = { ...(key && { Authorization: `Bearer ${key}` }), ...(body !== undefined && { "Content-Type": "application/json" }) };
    let answer: Response;
    try {
      answer = await fetch(this.base + path, { signal, method, body, headers });
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new Trouble("The server does not answer. Start it with `caesura serve` and try again.");
    }
    if (answer.status === 401) throw new Unauthorised();
    if (answer.ok) return answer;
    const said = await reason(answer);
    // What only reads is what the page is for, so it needs a key of a higher role.
    if (said.code === "role_needed" && method === "GET") throw new Unauthorised(said.text);
    throw new Trouble(said.text);
  }
}

const path = (recording: Recording): string => `/v1/trace/${encodeURIComponent(recording.id)}`;

interface Page {
  entries?: unknown;
  next?: number | null;
}

function pageOf(packed: ArrayBuffer): Page {
  try {
    return JSON.parse(new TextDecoder().decode(packed)) as Page;
  } catch {
    throw new Trouble("The server's answer cannot be read: it is no JSON, or it was cut off. Try again.");
  }
}

/** The entries of an event; one that is no JSON is passed over, since it would not be better the next time. */
function eventOf(data: string): Entry[] {
  try {
    return entriesOf(JSON.parse(data));
  } catch {
    return entriesOf(null);
  }
}

/** What an error of the server says, in its own words where it has some, and the error's code. */
async function reason(answer: Response): Promise<{ text: string; code?: string }> {
  const text = await answer.text().catch(() => "");
  try {
    const error = (JSON.parse(text) as { error?: { message?: string; code?: string } }).error;
    if (error?.message) return { text: error.message, code: error.code };
  } catch {
    // Not one of our errors: say which it is.
  }
  if (answer.status === 404) return { text: "The server does not have this recording: it was deleted, or recording is switched off." };
  return { text: `The server answered ${answer.status}. Its log says why.` };
}

const sleep = (seconds: number, signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, seconds * 1000);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
