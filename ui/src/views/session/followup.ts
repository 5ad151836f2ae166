// How the history before a turn became tokens: from an earlier answer's own tokens, or rendered again.
import { count } from "../../format";
import type { Attributes } from "../../model/records";
import { numberIn, textIn } from "./transcript";

/** Why a follow-up was rendered, by the record's word for it. */
const REASONS: Record<string, string> = {
  unknown: "The answer before it is not remembered: it is too old, comes from elsewhere or belongs to another asker.",
  changed: "What is remembered differs from what came back, first in the field that is named.",
  parameter: "The parameter that is named may shape the prompt.",
  media: "The messages hold more than text.",
  template: "The chat template writes other text before the answer once messages follow.",
  room: "Its spliced history would leave too little of the context window.",
  reasoning: "vLLM's reasoning parser would misread its spliced history.",
  off: "Splicing is switched off.",
};

/** Return what a turn's span says of its follow-up, and the explanation; null if it follows no answer. */
export function followUp(attributes: Attributes | undefined): { said: string; title: string } | null {
  const outcome = textIn(attributes, "caesura.follow_up.outcome");
  if (outcome === null) return null;
  if (outcome === "spliced") {
    const tokens = numberIn(attributes, "caesura.follow_up.spliced_tokens");
    return { said: `${count(tokens)} spliced`, title: "Tokens of the earlier answer and its prompt that were taken as they were" };
  }
  const why = textIn(attributes, "caesura.follow_up.why") ?? "";
  const field = textIn(attributes, "caesura.follow_up.field");
  return { said: `rendered again: ${why}${field ? ` (${field})` : ""}`, title: REASONS[why] ?? "The chat template wrote the whole history." };
}

/** Two texts by what they have in common at both ends, and what each has between. */
export interface Differing {
  before: string;
  kept: string;
  sent: string;
  behind: string;
}

/** Return the excerpts of what is remembered and of what came; null where none are recorded. */
export function differenceOf(attributes: Attributes | undefined): Differing | null {
  const [kept, sent] = ["kept", "sent"].map((name) => attributes?.[`caesura.follow_up.${name}`]);
  if (typeof kept !== "string" || typeof sent !== "string") return null;
  const [one, other] = [[...kept], [...sent]];
  const shorter = Math.min(one.length, other.length);
  let from = 0;
  while (from < shorter && one[from] === other[from]) from += 1;
  let same = 0;
  while (same < shorter - from && one[one.length - 1 - same] === other[other.length - 1 - same]) same += 1;
  const text = (letters: string[], begin: number, end: number): string => letters.slice(begin, end).join("");
  return {
    before: text(one, 0, from), kept: text(one, from, one.length - same), sent: text(other, from, other.length - same),
    behind: text(one, one.length - same, one.length),
  };
}
