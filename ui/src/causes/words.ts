// What a request's causes are called, and the one sentence that says why it took as long as it did.
import { count, counted, duration, percent } from "../format";
import type { Cause, Kind } from "./causes";
import type { Holders } from "./holders";

/** What each cause is called in a list, and what it means. */
export const CAUSES: Record<Kind, { name: string; meaning: string }> = {
  "paused-blocks": { name: "Blocks held by paused sessions", meaning: "Waited for free KV blocks; the part of the blocks that paused requests held meanwhile" },
  blocks: { name: "Blocks held by running requests", meaning: "Waited for free KV blocks; the part of the blocks that other requests held meanwhile" },
  slots: { name: "Slots", meaning: "Waited since as many requests ran as may run at once (max_num_seqs)" },
  tokens: { name: "Tokens of the step", meaning: "Waited since others took the tokens that a step may compute (max_num_batched_tokens)" },
  admission: { name: "Admission", meaning: "Waited until the admission policy let it in" },
  order: { name: "Order", meaning: "Waited behind a request that must not be overtaken" },
  queue: { name: "Queue", meaning: "Waited in the queue without a recorded lack: for the next step, or behind others that were looked at first" },
  loading: { name: "Loading KV", meaning: "Its KV was on the way back from the host" },
  prefill: { name: "Prompts", meaning: "Computed the request's own prompt or a tool's result" },
  recompute: { name: "Recomputation", meaning: "Computed again what had been dropped" },
  prompts: { name: "Prompts of others", meaning: "Decoded in steps that took longer than usual, since they computed prompts of others too" },
  decode: { name: "Decoding", meaning: "Decoded its own tokens" },
  died: { name: "The engine died", meaning: "Its engine died, and it went on in the next one: from the death until it was in that one's queue" },
  tool: { name: "Tool", meaning: "Paused for a tool" },
  person: { name: "Person", meaning: "Paused until a person answered" },
  runtime: { name: "Runtime in pauses", meaning: "Paused while calls were started, their results rendered, and the step that ran had to end" },
};

/** What is known beside the causes. */
export interface Beside {
  /** Who held the blocks during the longest wait for blocks. */
  holders: Holders | null;
  /** Requests that ran beside it while it decoded, on average; null where no steps are recorded. */
  others: number | null;
  /** The seconds for a token that decoding takes at best here; null where that is not known. */
  best: number | null;
}

/** Return the causes, longest first; both parts of waiting for blocks are one, under the name of the larger. */
export function ranked(causes: readonly Cause[]): Cause[] {
  const waits = causes.filter((cause) => cause.kind === "blocks" || cause.kind === "paused-blocks");
  if (waits.length < 2) return [...causes];
  const [larger, other] = waits;
  const both = { ...larger, seconds: larger.seconds + other.seconds };
  return [both, ...causes.filter((cause) => !waits.includes(cause))].sort((a, b) => b.seconds - a.seconds);
}

/** A second cause is told where it took at least this share of the time. */
const WORTH_TELLING = 0.2;

/** Return the sentence: how long a request took, mostly for what, and what else took much of it. */
export function sentenceOf(causes: readonly Cause[], seconds: number, beside: Beside, open = false): string {
  const [first, second] = ranked(causes);
  const length = `${duration(seconds)}${open ? " so far" : ""}`;
  if (!first) return length;
  // No cause is a larger part than all of it, whatever records say of the whole.
  const whole = Math.max(seconds, first.seconds);
  const told = [phrase(first, whole, beside)];
  if (second && second.seconds >= WORTH_TELLING * whole) told.push(phrase(second, whole, beside));
  return `${length}: ${told.join("; ")}`;
}

/** Return what one cause did to a request that took `whole` seconds. */
function phrase(cause: Cause, whole: number, beside: Beside): string {
  const took = duration(cause.seconds);
  switch (cause.kind) {
    case "blocks": case "paused-blocks": return `waited ${took} for ${heldBy(cause, beside.holders)}`;
    case "slots": return `waited ${took} for a slot, since as many requests ran as may run at once`;
    case "tokens": return `waited ${took} since others took the tokens of the steps`;
    case "admission": return `waited ${took} until admission let it in`;
    case "order": return `waited ${took} for its turn behind others`;
    case "queue": return `waited ${took} in the queue`;
    case "loading": return `loading its KV from the host took ${took}`;
    case "prefill": return `prefill of ${counted(Math.round(cause.tokens), "token")} took ${took}`;
    case "recompute": return `recomputed ${counted(Math.round(cause.tokens), "token")} in ${took} after its KV was dropped`;
    case "prompts": return `its steps took ${took} longer for prompts of others`;
    case "decode": return decoding(cause, whole, beside);
    case "died": return `its engine died, and it took ${took} until it went on in the next one`;
    case "tool": return `its tool ${cause.name || "(unknown)"} took ${took}${cause.times > 1 ? ` in ${count(cause.times)} calls` : ""}`;
    case "person": return `a person took ${took}${cause.times > 1 ? ` for ${count(cause.times)} answers` : ""}`;
    case "runtime": return `the runtime and the running step took ${took} of its pauses`;
  }
}

function heldBy(cause: Cause, holders: Holders | null): string {
  const paused = holders?.paused ? counted(holders.paused, "paused session") : "";
  const others = holders?.others ? counted(holders.others, "other request") : "";
  const mostly = holders ? holders.pausedShare >= 0.5 : cause.kind === "paused-blocks";
  if (!paused && !others) return mostly ? "blocks that paused sessions held" : "blocks that other requests held";
  return `blocks that ${(mostly ? paused || others : others || paused)} held`;
}

/** Decoding is called slow for the company only where it was slower than decoding is here at best. */
const SLOWER = 1.5;

function decoding(cause: Cause, whole: number, { others, best }: Beside): string {
  const share = `${percent(whole > 0 ? cause.seconds / whole : 0)} decode`;
  if (!cause.tokens) return share;
  const pace = cause.seconds / cause.tokens;
  const told = `${share} of ${counted(Math.round(cause.tokens), "token")} at ${duration(pace)} a token`;
  const company = others === null ? 0 : Math.round(others);
  if (company < 1) return others === null ? told : `${told}, alone`;
  const slower = best !== null && pace >= SLOWER * best;
  return `${told}, ${slower ? "since" : "while"} ${counted(company, "other")} ran`;
}
