// Which requests are far from what requests of their size take.
import { quantile, sorted } from "../charts/stats";
import { type Request, lengthOf } from "./figures";

/** A request and how far it is off: `times` what requests of its size take at the median, in seconds. */
export interface Strange {
  request: Request;
  usual: number;
  times: number;
  /** The distance from the median in median deviations, of logarithms; negative where it was quicker. */
  score: number;
}

/** A group of fewer says nothing of what is usual. */
const LEAST = 8;
/** The least deviation that counts, as a factor: in a group of equals the slightest difference would be strange. */
const FLOOR = Math.log(1.15);
/** What is within this factor of the usual is not strange, however alike the others are. */
const NEAR = 1.5;

/** Return the requests furthest from the median of their size, the strangest first.
 *
 * Those of a size have as many pauses, and prompts and outputs of about as many tokens: between half
 * and twice. Distances are of logarithms, in median absolute deviations, so that some strange
 * requests don't hide each other. A request whose size too few have is compared with all that have
 * as many pauses, and else with none.
 */
export function strangest(requests: readonly Request[], most: number): Strange[] {
  const groups = new Map<string, Request[]>();
  for (const request of requests) {
    for (const key of [sizeOf(request), `pauses ${Math.min(request.pauses, 5)}`]) {
      const group = groups.get(key);
      if (group) group.push(request);
      else groups.set(key, [request]);
    }
  }
  const found: Strange[] = [];
  const told = new Set<Request>();
  // The wide groups tell of those only whose size too few have.
  for (const wide of [false, true]) {
    for (const [key, group] of groups) {
      if (key.startsWith("pauses") !== wide || group.length < LEAST) continue;
      for (const one of within(group)) {
        if (told.has(one.request)) continue;
        told.add(one.request);
        found.push(one);
      }
    }
  }
  return found
    .filter((one) => Math.abs(Math.log(one.times)) >= Math.log(NEAR))
    .sort((a, b) => Math.abs(b.score) - Math.abs(a.score))
    .slice(0, most);
}

function within(group: readonly Request[]): Strange[] {
  const lengths = group.map((request) => Math.max(lengthOf(request, request.start), 1e-6));
  const logs = lengths.map(Math.log);
  const middle = quantile(sorted(logs), 0.5);
  const deviation = quantile(sorted(logs.map((one) => Math.abs(one - middle))), 0.5);
  const scale = Math.max(1.4826 * deviation, FLOOR);
  return group.map((request, place) => ({
    request, usual: Math.exp(middle), times: Math.exp(logs[place] - middle), score: (logs[place] - middle) / scale,
  }));
}

function sizeOf({ prompt, decoded, pauses }: Request): string {
  return `${Math.round(Math.log2(prompt + 1))} ${Math.round(Math.log2(decoded + 1))} ${Math.min(pauses, 5)}`;
}
