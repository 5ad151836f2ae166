// In which order requests are shown.
import type { Lane } from "../../../model/lane";
import type { Trace } from "../../../model/trace";
import { regretOf, waitedOf } from "./facts";

export const ORDERS = ["arrival", "duration", "waiting", "regret"] as const;
export type Order = (typeof ORDERS)[number];

/** Lanes in the order of their arrival, or those with the most first; `now` ends what goes on. */
export function ordered(trace: Trace, lanes: Lane[], order: Order, now: number): Lane[] {
  if (order === "arrival") return lanes;
  const size: Record<Exclude<Order, "arrival">, (lane: Lane) => number> = {
    duration: (lane) => Math.min(lane.left, now) - lane.start,
    waiting: (lane) => waitedOf(lane, now),
    regret: (lane) => regretOf(trace, lane),
  };
  const sizes = new Map(lanes.map((lane) => [lane, size[order](lane)]));
  return lanes.sort((a, b) => sizes.get(b)! - sizes.get(a)! || a.index - b.index);
}
