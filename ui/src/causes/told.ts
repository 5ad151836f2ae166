// The sentence that says why a request took as long as it did, with all that it needs to know.
import { quantile, sorted } from "../charts/stats";
import type { Trace } from "../model/trace";
import { type Cause, causesOf } from "./causes";
import { type Request, lengthOf, perToken } from "./figures";
import { holdersOf } from "./holders";
import type { Ledger } from "./ledger";
import { ranked, sentenceOf } from "./words";

/** The pace that a tenth of the requests had or bettered: what decoding takes here at best. */
export function bestPace(requests: readonly Request[]): number | null {
  const paces = sorted(requests.map((request) => perToken(request) ?? NaN));
  return paces.length ? quantile(paces, 0.1) : null;
}

/** Return the sentence and the first of its causes; `seconds` is the whole that causes are parts of. */
export function toldOf(
  request: Request, trace: Trace, ledger: Ledger, now: number, best: number | null, seconds = lengthOf(request, now),
): { sentence: string; first: Cause | undefined } {
  const causes = causesOf(ledger.piecesOf(request, now));
  const waits = causes.filter((cause) => cause.kind === "blocks" || cause.kind === "paused-blocks");
  const worst = waits[0]?.longest;
  const decode = causes.find((cause) => cause.kind === "decode")?.longest;
  const running = decode ? ledger.of(request).pressure.running(decode.from, decode.until) : null;
  const sentence = sentenceOf(causes, seconds, {
    holders: worst ? holdersOf(trace, request.lane.id, worst.from, worst.until) : null,
    others: running === null ? null : Math.max(0, running - 1),
    best,
  }, request.end === null);
  return { sentence, first: ranked(causes)[0] };
}
