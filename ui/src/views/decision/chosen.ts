// Which alternative a pause took, what each was worth, and why one was not possible.
import { DROPPED, type Lane, OFFLOADED } from "../../model/lane";
import type { Pause } from "../../model/pause";
import { ALTERNATIVES, type Alternative, type Prices } from "../../model/records";

/** What came of a pause; while it is open, what has been done so far. */
export function chosenOf(pause: Pause, lane: Lane | undefined): Alternative | null {
  const { handling } = pause;
  if (handling !== null) return ALTERNATIVES.find((one) => one === handling) ?? null;
  if (!lane?.length) return null;
  const kv = lane.kv[lane.length - 1];
  return kv === OFFLOADED ? "swap" : kv === DROPPED ? "discard" : "preserve";
}

/** The alternative with the least price; null where none has one. */
export function cheapest(prices: Prices | null | undefined): Alternative | null {
  let best: Alternative | null = null;
  for (const one of ALTERNATIVES) {
    const price = prices?.[one];
    if (typeof price === "number" && (best === null || price < (prices?.[best] ?? Infinity))) best = one;
  }
  return best;
}

/** Why an alternative has no price, as far as the inputs tell. */
export function impossible(one: Alternative, pause: Pause): string {
  const { inputs } = pause;
  if (one === "swap") {
    if (inputs?.swap_pays === false) return "Not possible: computing again is cheaper than copying.";
    if (inputs?.host_free === 0) return "Not possible: the host has no free blocks.";
    if (inputs && !inputs.link_blocks) return "Not possible: there is no link to host memory.";
    return "Not possible: swapping is switched off or does not pay.";
  }
  return "Not possible for this pause.";
}

/** How far off a prediction was: "2.1× too short". */
export function errorOf(predicted: number | null, actual: number | null): string {
  if (!predicted || !actual || predicted <= 0 || actual <= 0) return "";
  const factor = predicted / actual;
  if (factor > 1 / 1.1 && factor < 1.1) return "within 10\u202f%";
  const size = (factor > 1 ? factor : 1 / factor).toPrecision(2);
  return `${Number(size)}× too ${factor > 1 ? "long" : "short"}`;
}

/** How far off a pause's prediction was; one that was broken off early says nothing of it. */
export function estimateOf(pause: Pause): string {
  const { predictedSeconds: predicted, seconds: actual } = pause;
  if (pause.outcome === "ended" && (actual ?? 0) < (predicted ?? 0)) return "";
  return errorOf(predicted, actual);
}
