// Replays on the server, and the command that makes one where there is none.
import { storedKey } from "../sources/key";

/** The policies of a replay, by what they decide. */
export type Choice = Record<string, string>;

/** How the compared sessions fared; seconds and tokens. */
export interface Figures {
  latency_mean: number | null;
  latency_p50: number | null;
  latency_p99: number | null;
  ttft_mean: number | null;
  ttft_p99: number | null;
  recomputed: number;
}

/** One replay; without figures while it is under way. */
export interface Replay extends Partial<Figures> {
  policies: Choice;
  /** The recording that holds the result. */
  result?: number;
  /** Sessions that were faster and slower than in the first replay. */
  faster?: number;
  slower?: number;
}

export interface Job {
  recording: number;
  since: number;
  until: number;
  state: string;
  sessions: number;
  /** The completed share, from 0 to 1. */
  done: number;
  error: string;
  /** Sessions that are not replayed, by reason. */
  left_out: Record<string, number>;
  /** What of the recording the replays cannot follow, in sentences. */
  doubts: string[];
  /** How many sessions the figures are of: those that ended in the recording and in all replays. */
  compared: number;
  /** The recording itself. */
  was: Figures | null;
  /** The replay of the recorded policy comes first. */
  replays: Replay[];
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

/** Stand for "each of them" and "as it was recorded" in a choice. */
export const EACH = "*";
export const RECORDED = "";

/** The choices that one with `EACH` in it stands for; what stays as recorded is not named. */
export function choicesOf(choice: Choice, policies: State["policies"]): Choice[] {
  return Object.entries(choice).reduce<Choice[]>((made, [what, name]) => {
    if (name === RECORDED) return made;
    const names = name === EACH ? policies[what] ?? [] : [name];
    return made.flatMap((one) => names.map((each) => ({ ...one, [what]: each })));
  }, [{}]);
}

/** The command that replays a stretch of recording `id`, which tells of its policies in `about`. */
export function command(id: string, window: { t0: number; t1: number } | null, choice: Choice, about: Record<string, unknown>): string {
  const quoted = /^[\w.-]+$/.test(id) ? id : `'${id.replaceAll("'", "")}'`;
  const stretch = window ? ` --from ${window.t0.toFixed(3)} --to ${window.t1.toFixed(3)}` : "";
  const kept = Object.fromEntries(Object.keys(choice).map((what) => [what, policyIn(about, what)]).filter(([, name]) => name));
  const said = choicesOf(choice, KNOWN)
    .map((one) => `caesura:${Object.entries({ ...kept, ...one }).map(([what, name]) => `${what}=${name}`).join(",")}`)
    .join(",");
  return `caesura replay --recording ${quoted}${stretch} -p ${said} --machine calibration:path=FILE,kv=TOKENS,host=GB --trace`;
}

/** A policy that a recording tells, if it can stand in a command. */
function policyIn(about: Record<string, unknown>, what: string): string {
  const told = String(about[what] ?? "").replaceAll(",", ";");
  return /^[\w.:;=-]*$/.test(told) ? (told.includes(";") ? `'${told}'` : told) : "";
}
