// What a waiting request lacked, in plain language.
import type { Lacked } from "../../model/records";

const LACKED: Record<keyof Lacked, string> = {
  blocks: "free KV blocks",
  slots: "a free slot among the running requests (max_num_seqs)",
  tokens: "room in the step's token budget",
  admission: "the admission policy's consent",
  line: "its turn: it stood in line behind a request that may not be overtaken",
};

/** What a waiting request lacked, most often first: what, and in how many steps. */
export function lackedOf(lacked: Lacked | undefined): { what: string; steps: number }[] {
  return (Object.entries(lacked ?? {}) as [keyof Lacked, number][])
    .filter(([, steps]) => steps > 0)
    .sort((a, b) => b[1] - a[1])
    .map(([key, steps]) => ({ what: LACKED[key] ?? key, steps }));
}

const AFTER: Record<string, string> = {
  fresh: "newly arrived", tool: "back from its tool", preempted: "preempted",
};
export const afterOf = (after: string | undefined): string => (after ? (AFTER[after] ?? after) : "");
