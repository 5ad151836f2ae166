// What slowed a stretch of time: the seconds of all requests within it, by cause.
import type { Cause, Kind, Piece } from "./causes";
import { causesOf } from "./causes";
import type { Request } from "./figures";
import type { Ledger } from "./ledger";

/** The seconds that all requests together spent with one cause, in a window. */
export interface Slowed {
  kind: Kind;
  /** The tool's name; "" of all that is no pause. */
  name: string;
  seconds: number;
  /** Requests with it. */
  requests: number;
  tokens: number;
  /** The longest stretch, and whose it is: where a link leads. */
  longest: Piece;
  request: Request;
}

/** Return the causes of all time that requests spent in [from, until), the largest first.
 *
 * Of each request the time within the window counts, whether it ended there or not.
 */
export function slowedIn(ledger: Ledger, from: number, until: number, now: number): Slowed[] {
  const found = new Map<string, Slowed>();
  for (const request of ledger.hereIn(from, until)) {
    for (const cause of causesOf(ledger.piecesOf(request, now), from, until)) add(found, request, cause);
  }
  return [...found.values()].sort((a, b) => b.seconds - a.seconds);
}

function add(found: Map<string, Slowed>, request: Request, { kind, name, seconds, tokens, longest }: Cause): void {
  const key = `${kind} ${name}`;
  const known = found.get(key);
  if (!known) {
    found.set(key, { kind, name, seconds, requests: 1, tokens, longest, request });
    return;
  }
  known.seconds += seconds;
  known.requests += 1;
  known.tokens += tokens;
  if (longest.seconds > known.longest.seconds) [known.longest, known.request] = [longest, request];
}
