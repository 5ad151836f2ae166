// The server's list of what waits for a person: read, and answered with the server's key.
import { storedKey } from "../sources/key";
import { type Item, type Said, disclosed, doneOf, endOf, itemOf } from "./items";

/** What is open now, and the recording of the server that asks; null: it records nothing yet. */
export interface Listed {
  items: Item[];
  recording: string | null;
}

/** What became of an answer: `settled` if the item cannot be answered again. */
export interface Outcome {
  settled: boolean;
  text: string;
  /** The server wants another API key. */
  wantsKey?: boolean;
}

export const UNKNOWN = "The server does not answer, so it is not known whether this arrived. The list is read again when it does.";

export class Desk {
  private readonly base: string;

  /** `base` is where /v1 stands, without a slash at its end. */
  constructor(base: string) {
    this.base = base;
  }

  /** Return what is open; null if this server asks nobody. Rejects if it does not answer. */
  async listed(): Promise<Listed | null> {
    const answer = await this.ask("");
    if (answer.status === 404) return null;
    if (!answer.ok) throw new Error(`The server answered ${answer.status}.`);
    const told = (await answer.json()) as { data?: unknown[]; recording?: number | string | null };
    const items = (told.data ?? []).map(itemOf).filter((one) => one !== null);
    return { items, recording: told.recording === null || told.recording === undefined ? null : String(told.recording) };
  }

  /** Return what became of an item that is no longer listed. */
  async ending(id: string): Promise<string> {
    try {
      const answer = await this.ask(`/${encodeURIComponent(id)}`);
      const item = answer.ok ? itemOf(await answer.json()) : null;
      return item ? endOf(item) : "The server no longer has it.";
    } catch {
      return "The server does not answer, so it is not known what became of it.";
    }
  }

  /** Say something to an item. Nothing is sent twice. */
  async settle(item: Item, said: Said): Promise<Outcome> {
    let answer: Response;
    try {
      answer = await this.ask(`/${encodeURIComponent(item.id)}`, said);
    } catch {
      return { settled: false, text: UNKNOWN };
    }
    if (answer.ok) {
      const now = itemOf(await answer.json().catch(() => null));
      return { settled: true, text: now ? doneOf(now, item) : "The server has taken it." };
    }
    if (answer.status === 409) return { settled: true, text: `This came too late. ${await this.ending(item.id)}` };
    if (answer.status === 404) return { settled: true, text: "The server no longer has it, so nothing was changed." };
    if (answer.status === 401) return { settled: false, wantsKey: true, text: "Nothing was changed: the server wants another API key." };
    return { settled: false, text: `Nothing was changed. ${await reason(answer)}` };
  }

  private ask(path: string, body?: Said): Promise<Response> {
    const key = storedKey();
    const headers: Record<string, string> = key ? { Authorization: `Bearer ${key}` } : {};
    if (!body) return fetch(`${this.base}/v1/pending${path}`, { headers });
    headers["Content-Type"] = "application/json";
    return fetch(`${this.base}/v1/pending${path}`, { method: "POST", headers, body: JSON.stringify(body) });
  }
}

async function reason(answer: Response): Promise<string> {
  const told = (await answer.json().catch(() => null)) as { error?: { message?: unknown } } | null;
  const message = told?.error?.message;
  return typeof message === "string" ? disclosed(message) : `The server answered ${answer.status}.`;
}
