// What records say in one word, in plain language.
import type { Pause } from "../../model/pause";
import type { Alternative, Inputs } from "../../model/records";

export const ALTERNATIVE_NAMES: Record<Alternative, string> = {
  preserve: "Preserve", discard: "Discard", swap: "Swap",
};

export const ALTERNATIVE_MEANINGS: Record<Alternative, string> = {
  preserve: "Keep the blocks on the device until the result is there.",
  discard: "Free the blocks and compute the context again.",
  swap: "Copy the blocks to the host, free them, and load them again.",
};

const WHYS: Record<string, string> = {
  decided: "the policy decided so in this step",
  running: "running requests needed blocks",
  admit: "a waiting request needed blocks to start",
  stuck: "nothing could have run otherwise",
  deadline: "the pause was past its deadline",
  reset: "the prefix cache was reset",
};

/** Why blocks were taken; "" where the record does not say. */
export const whyOf = (why: string | undefined): string => (why ? (WHYS[why] ?? why) : "");

const OUTCOMES: Record<string, string> = {
  resumed: "resumed", followed: "followed by a new request", ended: "no follow-up came", open: "open", lost: "lost with the engine",
};

/** How a pause ended. */
export const outcomeOf = (pause: Pause): string =>
  pause.givenUp ? "KV freed before a follow-up came" : (OUTCOMES[pause.outcome] ?? pause.outcome);

const HANDLINGS: Record<string, string> = { preserve: "preserved", discard: "discarded", swap: "swapped" };

/** What came of the KV cache of a pause. Only of one that resumed do records say how. */
export function handlingOf(pause: Pause): string {
  const { handling } = pause;
  if (handling === null) return pause.outcome === "lost" ? "lost with the engine" : "open";
  if (handling !== "none") return HANDLINGS[handling] ?? handling;
  return pause.outcome === "followed" ? "left to the follow-up" : "freed";
}

/** What alternatives are as deeds: one that comes late costs more than one at the beginning. */
export const DEEDS: Record<Alternative, string> = {
  preserve: "keeping all of it", discard: "discarding it at once", swap: "swapping it at once",
};

/** What a KV policy goes by where it is not the least price at the beginning. */
const POLICIES: Record<string, string> = {
  caesura: "The policy caesura does not take the least price at the beginning: it keeps all blocks, copies them while the link is idle, and gives some up only when a request needs them.",
  preserve: "The policy preserve keeps blocks whatever they cost, until running requests need them.",
  discard: "The policy discard gives blocks up whatever that costs.",
  swap: "The policy swap swaps whatever that costs, as far as the host has room.",
  ttl: "The policy ttl goes by a time for which it keeps blocks, not by the prices.",
};

/** Why something else was done than what was cheapest at the beginning. */
export const otherwise = (policy: string | null): string =>
  POLICIES[policy ?? ""] ?? "A policy decides at every step, and prices change from one step to the next: what was cheapest at the beginning need not be done.";

export type Unit = "blocks" | "tokens" | "seconds" | "yes";

/** The policy's inputs: plain name, unit, and what it means. */
export const INPUTS: [key: keyof Inputs, name: string, unit: Unit, meaning: string][] = [
  ["remaining", "Expected to remain", "seconds", "How much longer the pause was expected to last."],
  ["elapsed", "Elapsed", "seconds", "How long the pause had lasted when this was asked."],
  ["resident", "Blocks of its own", "blocks", "Blocks on the device that would be free if it gave them up; those that it shares do not count."],
  ["free_to_release", "Free to release", "blocks", "Blocks that can be released without losing anything: copies of them are on the host."],
  ["uncopied", "Not yet copied", "blocks", "Blocks on the device without a copy on the host, and without one on the way."],
  ["hosted", "Copied to the host", "blocks", "Blocks of its context with a confirmed copy there, on the device too or not."],
  ["missing", "Missing", "blocks", "Blocks that are neither on the device nor on the host and would be recomputed."],
  ["recomputed", "Computed again after a discard", "tokens", "Tokens behind the last place that the prefix cache could go on from, in a model with several groups of layers."],
  ["free_blocks", "Device, free", "blocks", "Free blocks of the device."],
  ["total_blocks", "Device, all", "blocks", "KV blocks of the device."],
  ["host_free", "Host, free", "blocks", "Free blocks on the host."],
  ["block_size", "Block size", "tokens", "Tokens in a block of full attention. A window or a state has blocks of its own."],
  ["running_tokens", "Tokens of the next step", "tokens", "Query tokens of the running requests."],
  ["running_context", "Running context", "tokens", "Context of all running requests together."],
  ["step_seconds", "Time of the next step", "seconds", "How long a step of the running requests takes."],
  ["link_blocks", "Copied beside a step", "blocks", "Blocks that can be copied to the host or back while a step computes, without making it longer."],
  ["swap_pays", "Swapping pays", "yes", "Whether copying is cheaper than computing again."],
];
