// What waits for a person, as `/v1/pending` tells it, and the words for what became of it.
import { moment } from "../format";

/** A question, or a call to approve. Times are Unix seconds. */
export interface Item {
  id: string;
  kind: "question" | "approval";
  /** The id of the completion that asks. */
  session: string;
  tool: string;
  question: string;
  /** The arguments of the call to approve, as JSON text. */
  arguments: string;
  options: string[];
  created: number;
  deadline: number;
  /** The answer to a question at its deadline. */
  default: string | null;
  state: string;
  answer: string | null;
  approved: boolean | null;
  who: string;
}

/** What a person says: an answer to a question, or a decision about a call. */
export type Said = { answer: string } | { approve: boolean; reason?: string };

const TEXTS = ["id", "session", "tool", "question", "arguments", "state", "who"] as const;

/** Return data of the server as an item; null for what is none. */
export function itemOf(value: unknown): Item | null {
  if (typeof value !== "object" || value === null) return null;
  const given = value as Record<string, unknown>;
  if (given.kind !== "question" && given.kind !== "approval") return null;
  if (TEXTS.some((name) => typeof given[name] !== "string") || given.id === "") return null;
  if (typeof given.created !== "number" || typeof given.deadline !== "number") return null;
  return {
    ...(given as unknown as Item),
    options: Array.isArray(given.options) ? given.options.filter((one) => typeof one === "string") : [],
    default: typeof given.default === "string" ? given.default : null,
    answer: typeof given.answer === "string" ? given.answer : null,
    approved: typeof given.approved === "boolean" ? given.approved : null,
  };
}

/** Return a text with every character shown that has no form of its own, or that turns the direction.
 *
 * A person approves what they see. So line ends are the only such characters that stay.
 */
export function disclosed(text: string): string {
  return text.replace(
    /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}\u00a0\u115f\u1160\u1680\u2000-\u200a\u202f\u205f\u2800\u3000\u3164\uffa0\u{e0100}-\u{e01ef}\ufe00-\ufe0f]/gu,
    (one) => (one === "\n" ? one : `⟨U+${one.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}⟩`),
  );
}

/** Return what became of an item that nobody can answer any more. */
export function endOf(item: Item): string {
  const by = item.who ? ` by ${disclosed(item.who)}` : "";
  if (item.state === "answered") {
    if (item.kind === "question") return `It was answered elsewhere${by}: ${disclosed(item.answer ?? "")}`;
    const why = item.answer ? `: ${disclosed(item.answer)}` : "";
    return `It was ${item.approved ? "approved" : "denied"} elsewhere${by}${why}`;
  }
  if (item.state === "expired") return `Its deadline passed at ${moment(item.deadline, 0)}.`;
  if (item.state === "cancelled") return "Its request has ended, so nobody waits for an answer any more.";
  return "It can no longer be answered.";
}

/** Return what a decision that the server has taken means. */
export function doneOf(item: Item, before: Item): string {
  const later = before.state === "orphaned" ? " It counts when the same request is sent again." : "";
  if (item.kind === "question") return `Answered.${later}`;
  if (item.approved) return later ? `Approved.${later}` : "Approved. The call runs now.";
  return `Denied. The model reads that${item.answer ? ", and why" : ""}.${later}`;
}
