// Replays on the server, and the command that makes one where there is none.
import { storedKey } from "../sources/key";

/** The policies of a replay, by what they decide. */
export type Choice = Record<string, string>;

export interface Job {
  recording: number;
  since: number;
  until: number;
  state: string;
  sessions: number;
  /** The completed share, from 0 to 1. */
  done: number;
  /** The recording that holds the result. */
  result: number | null;
  error: string;
  policies: Choice;
}

/** The names that can be chosen, and the last replay. */
export interface State {
  policies: Record<string, string[]>;
  job: Job | null;
}

/** Ask the server; null if it offers no replays. Rejects with a sentence. */
export async function ask(base: string, method: "GET" | "POST" | "DELETE", body?: unknown): Promise<State | null> {
  const key = storedKey();
  const headers: Record<string, string> = key ? { Authorization: `Bearer ${key}` } : {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer: Response;
  try {
    answer = await fetch(`${base}/v1/what-if`, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    throw new Error("The server does not answer.");
  }
  if (answer.ok) return (await answer.json()) as State;
  if (answer.status === 404 && method === "GET") return null;
  const told = (await answer.json().catch(() => null)) as { error?: { message?: unknown } } | null;
  const message = told?.error?.message;
  throw new Error(typeof message === "string" ? message : `The server answered ${answer.status}.`);
}

/** The names that a command may choose from, where no server tells them. */
export const KNOWN: State["policies"] = {
  handling: ["caesura", "preserve", "discard", "swap", "infercept", "lamps", "ttl"],
  ranking: ["fcfs", "caesura", "ssjf", "tie", "lamps"],
  admission: ["vllm", "conservative", "aggressive", "past-future"],
};

/** The command that replays a stretch of recording `id`. */
export function command(id: string, window: { t0: number; t1: number } | null, choice: Choice): string {
  const quoted = /^[\w.-]+$/.test(id) ? id : `'${id.replaceAll("'", "")}'`;
  const stretch = window ? ` --from ${window.t0.toFixed(3)} --to ${window.t1.toFixed(3)}` : "";
  const said = Object.entries(choice).map(([what, name]) => `${what}=${name}`).join(",");
  return `caesura replay --recording ${quoted}${stretch} -p stock,caesura:${said} --machine calibration:path=FILE,kv=TOKENS,host=GB --trace`;
}
