// Which requests are far from what requests of their size take.
import { grouped } from "../charts/group";
import { quantile } from "../charts/stats";
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
  const found: Strange[] = [];
  const few: Request[] = [];
  for (const group of grouped(requests, sizeOf).values()) {
    if (group.length >= LEAST) tell(group, group, found);
    else few.push(...group);
  }
  const pauses = grouped(requests, pausesOf);
  for (const [key, group] of grouped(few, pausesOf)) {
    const wide = pauses.get(key) ?? [];
    if (wide.length >= LEAST) tell(group, wide, found);
  }
  return found.sort((a, b) => Math.abs(b.score) - Math.abs(a.score)).slice(0, most);
}

/** Add those of `group` that are far from the median of `all`. */
function tell(group: readonly Request[], all: readonly Request[], found: Strange[]): void {
  const logs = Float64Array.from(all, logOf).sort();
  const middle = quantile(logs, 0.5);
  const deviation = quantile(logs.map((one) => Math.abs(one - middle)).sort(), 0.5);
  const scale = Math.max(1.4826 * deviation, FLOOR);
  for (const request of group) {
    const off = logOf(request) - middle;
    if (Math.abs(off) < Math.log(NEAR)) continue;
    found.push({ request, usual: Math.exp(middle), times: Math.exp(off), score: off / scale });
  }
}

const logOf = (request: Request): number => Math.log(Math.max(lengthOf(request, request.start), 1e-6));
const pausesOf = (request: Request): number => Math.min(request.pauses, 5);

/** Pauses, prompt and output to the next power of two, in one number. */
function sizeOf(request: Request): number {
  const power = (tokens: number): number => Math.round(Math.log2(tokens + 1));
  return (power(request.prompt) * 64 + power(request.decoded)) * 8 + pausesOf(request);
}
