// How tall each state is drawn, as shares of a row: what computes is full, what is paused is lower.
import { DECODE, DROPPED, LOADING, LOST, OFFLOADED, PAUSED, PERSON, PREFILL, RECOMPUTE, WAITING } from "../../model/lane";

export interface Shape {
  top: number;
  height: number;
}

const FULL: Shape = { top: 0.12, height: 0.76 };
const HALF: Shape = { top: 0.4, height: 0.48 };

export const SHAPES: Shape[] = [];
SHAPES[WAITING] = { top: 0.26, height: 0.62 };
SHAPES[LOADING] = FULL;
SHAPES[PREFILL] = FULL;
SHAPES[RECOMPUTE] = FULL;
SHAPES[DECODE] = { top: 0.22, height: 0.66 };
SHAPES[PAUSED] = HALF;
SHAPES[OFFLOADED] = HALF;
SHAPES[DROPPED] = HALF;
SHAPES[PERSON] = HALF;
SHAPES[LOST] = { top: 0.4, height: 0.2 };

/** What states are called, in a word or two. */
export const STATE_NAMES: Record<string, string> = {
  waiting: "waiting", loading: "loading", prefill: "prefill", recompute: "recompute", decode: "decode",
  paused: "paused", offloaded: "offloaded", dropped: "dropped", person: "waits for a person", ended: "ended", lost: "lost with the engine",
};

/** What states mean, for the legend and tooltips. */
export const STATE_MEANINGS: Record<string, string> = {
  waiting: "In the queue: new, preempted, or back from a tool.",
  loading: "Blocks are allocated; KV is on its way from the host.",
  prefill: "New tokens are computed: a prompt, or a tool's result.",
  recompute: "Tokens are computed again whose KV was dropped.",
  decode: "Tokens are generated.",
  paused: "A tool runs; all its KV stays on the device.",
  offloaded: "A tool runs; part of its KV is on the host only.",
  dropped: "A tool runs; part of its KV is gone, unless the prefix cache still has it.",
  person: "A person is to answer; what its KV does is in the details.",
  ended: "The request has ended.",
  lost: "The engine died; the session goes on in the next one, from its tokens.",
};
