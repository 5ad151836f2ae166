// The requests that are shown, in their order; what the decisions' list needs of it too.
import type { Filters } from "../../app/state";
import type { Lane } from "../../model/lane";
import type { Trace } from "../../model/trace";
import { type More, NO_MORE, passing, passingMore } from "./rows/filter";
import { type Order, ordered } from "./rows/order";

export { outcomesOf, passing } from "./rows/filter";

/** Which requests are shown of a trace, and how. */
export interface Asked {
  filters: Filters;
  more?: More;
  order?: Order;
  /** Whether a request is let in before all else is asked. */
  admits?: (lane: Lane) => boolean;
}

/** The lanes that the filters let through, in order; `now` ends what goes on. */
export function lanesOf(trace: Trace, now: number, { filters, more = NO_MORE, order = "arrival", admits }: Asked): Lane[] {
  const [some, rest] = [passing(trace, filters), passingMore(trace, more, now)];
  return ordered(trace, trace.lanes.filter((lane) => (!admits || admits(lane)) && some(lane) && rest(lane)), order, now);
}
