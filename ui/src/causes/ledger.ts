// The requests of a trace by when they ended, kept up to date as entries come.
import { insert } from "../model/belonging";
import type { Lane } from "../model/lane";
import type { Trace } from "../model/trace";
import { type Piece, piecesOf } from "./causes";
import { type Request, requestOf } from "./figures";
import { Pressure } from "./pressure";

/** A request's last steps and the record of its wait may be written this long after its end, in seconds. */
const LATE = 2;

/**
 * A live page takes in five batches a second, and may have 30,000 requests. So what a request took
 * is worked out while it goes on and once more when all is known of it, and then never again.
 */
export class Ledger {
  /** Ended requests by their ends, and where they ended at once, by their first appearance. */
  ended: Request[] = [];
  /** Those of which all is known, in the order in which that came to be. */
  settled: Request[] = [];
  readonly pressure: Pressure;
  private taken = 0;
  private unsettled = new Map<Lane, Request | null>();

  constructor(readonly trace: Trace) {
    this.pressure = new Pressure(trace.steps);
  }

  /** Take in what has come; `now` is the recording's time at this moment. */
  update(now: number): void {
    const { lanes } = this.trace;
    this.pressure.update();
    for (; this.taken < lanes.length; this.taken++) this.unsettled.set(lanes[this.taken], null);
    for (const [lane, known] of this.unsettled) {
      if (!lane.length) continue;
      const fresh = requestOf(this.trace, lane, Math.min(now, lane.cut));
      if (known && known.end !== null) this.ended.splice(this.ended.indexOf(known, this.firstFrom(known.end)), 1);
      if (fresh.end !== null) insert(this.ended, fresh, endOf);
      // One that was lost with its engine may go on in the next one.
      if (fresh.end !== null && !lane.lost && this.trace.to >= (lane.end ?? 0) + LATE) {
        this.settled.push(fresh);
        this.unsettled.delete(lane);
      } else {
        this.unsettled.set(lane, fresh);
      }
    }
  }

  /** The requests of which not all is known: those that go on, and those that have just ended. */
  get others(): Request[] {
    return [...this.unsettled.values()].filter((request) => request !== null);
  }

  /** The requests that go on. */
  get open(): Request[] {
    return this.others.filter((request) => request.end === null);
  }

  /** The requests that ended in [from, until): each ended in one of two windows that touch. */
  endedIn(from: number, until: number): Request[] {
    return this.ended.slice(this.firstFrom(from), this.firstFrom(until));
  }

  /** The requests that were here at any time of [from, until). */
  hereIn(from: number, until: number): Request[] {
    const here = this.ended.slice(this.firstFrom(from)).filter((request) => request.start < until);
    return [...here, ...this.open.filter((request) => request.start < until)];
  }

  /** Where a request's time went. */
  piecesOf(request: Request, now: number): Piece[] {
    return piecesOf(request, this.trace, this.pressure, now);
  }

  /** The ledger of a request's own engine. */
  of(_request: Request): Ledger {
    return this;
  }

  private firstFrom(time: number): number {
    let low = 0;
    let high = this.ended.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (endOf(this.ended[middle]) < time) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

/** The ledgers of several engines: what slowed a request is told by its own engine's steps. */
class JoinedLedger extends Ledger {
  private byPart = new Map<Trace, Ledger>();

  override update(now: number): void {
    this.byPart = new Map(this.trace.parts.map((part) => [part, ledgerOf(part, Math.min(now, part.cut))]));
    this.ended = [...this.byPart.values()].flatMap((one) => one.ended).sort((a, b) => endOf(a) - endOf(b));
  }

  override get others(): Request[] {
    return [...this.byPart.values()].flatMap((one) => one.others);
  }

  override piecesOf(request: Request, now: number): Piece[] {
    return this.of(request).piecesOf(request, now);
  }

  override of({ lane }: Request): Ledger {
    return this.byPart.get(this.trace.partOf(lane.id)) ?? this;
  }
}

/** When a request of `Ledger.ended` ended, which all of them have. */
const endOf = (request: Request): number => request.end ?? 0;

const ledgers = new WeakMap<Trace, Ledger>();

/** Return the ledger of a trace, up to date. */
export function ledgerOf(trace: Trace, now: number): Ledger {
  let ledger = ledgers.get(trace);
  if (!ledger) ledgers.set(trace, (ledger = trace.parts[0] === trace ? new Ledger(trace) : new JoinedLedger(trace)));
  ledger.update(now);
  return ledger;
}
