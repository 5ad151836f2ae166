// What slowed a stretch of time: the seconds of all requests within it, by cause.
import { type Kind, type Piece, tell } from "./causes";
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
  /** The longest stretch, and whose it is: where a link leads. */
  longest: Piece;
  request: Request;
}

/** A cause's sums, and the stretch that was told last: the next may continue it. */
interface Tally extends Slowed {
  last: Piece;
  of: Request;
}

/** Sums over requests by cause; each request is added once. */
class Sums {
  private readonly tallies = new Map<Kind, Map<string, Tally>>();

  /** Add what a request spent in [from, until); what stretches took is spread evenly over them. */
  add(ledger: Ledger, request: Request, now: number, from = -Infinity, until = Infinity): void {
    const own = ledger.of(request);
    tell(request, own.trace, own.pressure, Math.min(now, request.lane.cut), (kind, name, begin, end, seconds, tokens) => {
      if (begin >= from && end <= until) {
        this.put(request, kind, name, begin, end, seconds, tokens);
        return;
      }
      const first = Math.max(begin, from);
      const last = Math.min(end, until);
      const share = (last - first) / (end - begin);
      if (share > 0) this.put(request, kind, name, first, last, seconds * share, tokens * share);
    });
  }

  copy(): Sums {
    const made = new Sums();
    for (const tally of this.each()) {
      made.of(tally.kind).set(tally.name, { ...tally, last: { ...tally.last }, longest: { ...tally.longest } });
    }
    return made;
  }

  sorted(): Slowed[] {
    return [...this.each()].sort((a, b) => b.seconds - a.seconds);
  }

  private *each(): Generator<Tally> {
    for (const named of this.tallies.values()) yield* named.values();
  }

  private of(kind: Kind): Map<string, Tally> {
    let named = this.tallies.get(kind);
    if (!named) this.tallies.set(kind, (named = new Map()));
    return named;
  }

  private put(request: Request, kind: Kind, name: string, from: number, until: number, seconds: number, tokens: number): void {
    const named = this.of(kind);
    const tally = named.get(name);
    if (!tally) {
      const last = { kind, name, from, until, seconds, tokens };
      named.set(name, { kind, name, seconds, requests: 1, longest: { ...last }, request, last, of: request });
      return;
    }
    const { last } = tally;
    const goesOn = tally.of === request && last.until === from;
    if (tally.of !== request) tally.requests += 1;
    tally.of = request;
    tally.seconds += seconds;
    // A state is told again when blocks change: the tokens of a prefill are the same then.
    if (!goesOn) [last.from, last.seconds, last.tokens] = [from, 0, tokens];
    last.until = until;
    last.seconds += seconds;
    if (last.seconds <= tally.longest.seconds) return;
    Object.assign(tally.longest, last);
    tally.request = request;
  }
}

/** Sums that are kept, since what is known of a request does not change any more. */
interface Kept {
  /** Over all settled requests, and how many those are. */
  sums: Sums;
  taken: number;
  /** Of the last window in which no request went on. */
  window: string;
  found: Slowed[];
}

const kept = new WeakMap<Ledger, Kept>();

/** Return the causes of all time that requests spent in [from, until), the largest first.
 *
 * Of each request the time within the window counts, whether it ended there or not. All of a long
 * recording is summed up once, and only what goes on is added anew.
 */
export function slowedIn(ledger: Ledger, from: number, until: number, now: number): Slowed[] {
  let known = kept.get(ledger);
  if (!known) kept.set(ledger, (known = { sums: new Sums(), taken: 0, window: "", found: [] }));
  const { trace } = ledger;
  if (ledger.trace.parts[0] === trace && from <= trace.from && until >= Math.max(trace.to, now)) {
    for (; known.taken < ledger.settled.length; known.taken++) known.sums.add(ledger, ledger.settled[known.taken], now);
    const sums = known.sums.copy();
    for (const request of ledger.others) sums.add(ledger, request, now);
    return sums.sorted();
  }
  const here = ledger.hereIn(from, until);
  const window = `${from} ${until} ${here.length}`;
  if (known.window === window) return known.found;
  const sums = new Sums();
  for (const request of here) sums.add(ledger, request, now, from, until);
  const found = sums.sorted();
  const goingOn = ledger.others.some((request) => request.start < until);
  [known.window, known.found] = goingOn ? ["", []] : [window, found];
  return found;
}
