// The same sessions in two recordings, and those that fared most differently.
import type { SessionFigures } from "../session/figures";

export interface Pair {
  a: SessionFigures;
  b: SessionFigures;
  /** Latency in B less that in A, in seconds; null where either has not ended. */
  difference: number | null;
}

/** `by` says how sessions were matched, or that they could not be. */
export interface Matched {
  by: "name" | "arrival" | "none";
  pairs: Pair[];
}

/** Match sessions by their ids if most are shared, else in the order of arrival if as many arrived. */
export function match(a: readonly SessionFigures[], b: readonly SessionFigures[]): Matched {
  const named = new Map(b.map((session) => [session.id, session]));
  const shared = a.filter((session) => named.has(session.id));
  if (shared.length > 0 && shared.length * 2 >= Math.min(a.length, b.length)) {
    return { by: "name", pairs: shared.map((one) => pair(one, named.get(one.id) as SessionFigures)) };
  }
  if (a.length === 0 || a.length !== b.length) return { by: "none", pairs: [] };
  return { by: "arrival", pairs: a.map((one, place) => pair(one, b[place])) };
}

/** Return the pairs whose latencies differ most, the largest difference first. */
export function furthest(pairs: readonly Pair[], most: number): Pair[] {
  const size = (one: Pair): number => Math.abs(one.difference ?? 0);
  return pairs
    .filter((one) => one.difference !== null && one.difference !== 0)
    .sort((one, two) => size(two) - size(one))
    .slice(0, most);
}

function pair(a: SessionFigures, b: SessionFigures): Pair {
  const known = a.latency !== null && b.latency !== null;
  return { a, b, difference: known ? (b.latency as number) - (a.latency as number) : null };
}

/** How many of two recordings' sessions are compared, and how many are left out and why. */
export interface Population {
  /** Pairs of which both ended. */
  both: Pair[];
  onlyA: number;
  onlyB: number;
  neither: number;
  /** Sessions that the other recording does not have. */
  unmatched: number;
}

/** Sort the pairs of `matched`, which come from `a` and `b`, by whether they ended. */
export function populationOf(matched: Matched, a: readonly SessionFigures[], b: readonly SessionFigures[]): Population {
  const ended = (one: SessionFigures): boolean => one.end !== null;
  const count = (test: (one: Pair) => boolean): number => matched.pairs.filter(test).length;
  return {
    both: matched.pairs.filter((one) => ended(one.a) && ended(one.b)),
    onlyA: count((one) => ended(one.a) && !ended(one.b)),
    onlyB: count((one) => !ended(one.a) && ended(one.b)),
    neither: count((one) => !ended(one.a) && !ended(one.b)),
    unmatched: a.length + b.length - 2 * matched.pairs.length,
  };
}
