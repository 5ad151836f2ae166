// What a waiting request lacked, in plain language, and what to ask of it.
import type { Lacked, WaitEntry } from "../../model/records";

export type Lack = keyof Lacked;

const LACKED: Record<Lack, string> = {
  blocks: "free KV blocks",
  slots: "a free slot among the running requests (max_num_seqs)",
  tokens: "room in the step's token budget",
  admission: "the admission policy's consent",
  line: "its turn: it stood in line behind a request that may not be overtaken",
};

/** Who stood in the way, asked for each lack. */
export const QUESTIONS: Record<Lack, string> = {
  blocks: "Who held blocks?",
  slots: "Who had the slots?",
  tokens: "Who took the tokens?",
  admission: "Who was admitted?",
  line: "Who stood before it?",
};

const isLack = (name: string): name is Lack => name in LACKED;

/** What a waiting request lacked, most often first: what, and in how many steps. */
export function lackedOf(lacked: Lacked | undefined): { lack: Lack | null; what: string; steps: number }[] {
  return Object.entries(lacked ?? {})
    .filter(([, steps]) => steps > 0)
    .sort((a, b) => b[1] - a[1])
    .map(([name, steps]) => ({ lack: isLack(name) ? name : null, what: isLack(name) ? LACKED[name] : name, steps }));
}

/** What a wait lacked most often; null where no record tells. */
export const mainLack = (wait: WaitEntry | undefined): Lack | null => lackedOf(wait?.lacked)[0]?.lack ?? null;

const AFTER: Record<string, string> = {
  fresh: "newly arrived", tool: "back from its tool", preempted: "preempted",
};
export const afterOf = (after: string | undefined): string => (after ? (AFTER[after] ?? after) : "");
