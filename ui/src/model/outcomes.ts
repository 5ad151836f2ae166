// What was predicted against what came, as the records say; `scheduler/records/outcomes.py` does the same.
import type { ForecastEntry, PauseEntry, Prediction, SessionEntry } from "./records";

/** Quantities whose mean is predicted, and events whose probability is. */
export const NUMBERS = ["decode_tokens", "calls_left", "pause_seconds"] as const;
export const CHANCES = ["ends_now", "ends_within_3", "long_pause"] as const;
export const QUANTITIES = [...NUMBERS, ...CHANCES] as const;
export type Quantity = (typeof QUANTITIES)[number];
export const isChance = (quantity: Quantity): boolean => (CHANCES as readonly string[]).includes(quantity);

const FEW_CALLS = 3;
const LONG_SECONDS = 30;
/** Clocks of records differ by rounding, in seconds. */
const CLOSE = 1e-4;

/** A forecast of a segment with what came of it, by quantity. */
export interface Segment {
  forecast: ForecastEntry;
  session: string;
  actual: Partial<Record<Quantity, number>>;
}

/** The pairs of one predictor and one quantity, in columns of equal length. */
export class Pairs {
  readonly at: number[] = [];
  readonly predicted: number[] = [];
  /** Tokens, calls or seconds; 1 or 0 of an event. */
  readonly actual: number[] = [];
  readonly segments: Segment[] = [];
  /** How many had 10 and 90 % quantiles, and how many came between them. */
  ranged = 0;
  within = 0;

  constructor(readonly quantity: Quantity, readonly predictor: string) {}
}

export class Outcomes {
  /** By quantity and predictor, in the order of first appearance. */
  readonly pairs = new Map<string, Pairs>();
  /** All forecasts of each session, in time order. */
  readonly sessions = new Map<string, Segment[]>();
  private readonly ended = new Set<string>();

  takeForecast(forecast: ForecastEntry): void {
    const session = forecast.session || forecast.request;
    const segment: Segment = { forecast, session, actual: {} };
    const known = this.sessions.get(session);
    if (known) known.push(segment);
    else this.sessions.set(session, [segment]);
  }

  /** A segment has ended with a call. */
  takePause(entry: PauseEntry): void {
    const segments = this.sessions.get(entry.session || entry.request) ?? [];
    const segment = segments.findLast((one) => one.forecast.at <= entry.at + CLOSE);
    if (!segment || segment.actual.decode_tokens !== undefined) return;
    this.came(segment, "decode_tokens", entry.decoded_tokens ?? 0);
    this.came(segment, "ends_now", 0);
    const seconds = entry.pause_seconds;
    if (typeof seconds === "number" && (entry.outcome === "resumed" || entry.outcome === "followed")) {
      this.came(segment, "pause_seconds", seconds);
      this.came(segment, "long_pause", seconds > LONG_SECONDS ? 1 : 0);
    }
    const made = (segment.forecast.calls ?? 0) + 1;
    for (const one of segments) {
      if (made - (one.forecast.calls ?? 0) > FEW_CALLS) this.came(one, "ends_within_3", 0);
    }
  }

  /** A session has ended; one that was aborted says nothing of its calls. */
  takeSession(entry: SessionEntry): void {
    const session = entry.session || entry.request;
    if (this.ended.has(session) || (entry.outcome !== "stop" && entry.outcome !== "length")) return;
    this.ended.add(session);
    for (const segment of this.sessions.get(session) ?? []) {
      const left = (entry.calls ?? 0) - (segment.forecast.calls ?? 0);
      if (left < 0) continue;
      if (left === 0) {
        this.came(segment, "decode_tokens", entry.decoded_tokens ?? 0);
        this.came(segment, "ends_now", 1);
      }
      this.came(segment, "calls_left", left);
      this.came(segment, "ends_within_3", left <= FEW_CALLS ? 1 : 0);
    }
  }

  private came(segment: Segment, quantity: Quantity, actual: number): void {
    if (segment.actual[quantity] !== undefined) return;
    segment.actual[quantity] = actual;
    for (const row of segment.forecast.predictions ?? []) {
      const predicted = row[quantity];
      if (typeof predicted === "number") this.pair(segment, quantity, row, predicted, actual);
    }
  }

  private pair(segment: Segment, quantity: Quantity, row: Prediction, predicted: number, actual: number): void {
    const predictor = row.predictor ?? "";
    const key = `${quantity} ${predictor}`;
    let pairs = this.pairs.get(key);
    if (!pairs) this.pairs.set(key, (pairs = new Pairs(quantity, predictor)));
    pairs.at.push(segment.forecast.at);
    pairs.predicted.push(predicted);
    pairs.actual.push(actual);
    pairs.segments.push(segment);
    const range = row.decode_quantiles ?? [];
    // A prediction of a single value has no range.
    if (quantity !== "decode_tokens" || !(range[0] < range[range.length - 1])) return;
    pairs.ranged += 1;
    if (range[0] <= actual && actual <= range[range.length - 1]) pairs.within += 1;
  }
}
