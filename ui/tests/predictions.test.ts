// What was predicted is compared with what came, as `tests/scheduler/test_accuracy.py` has it.
import { describe, expect, test } from "vitest";
import { Outcomes, type Quantity } from "../src/model/outcomes";
import type { Entry, ForecastEntry, PauseEntry, SessionEntry } from "../src/model/records";
import {
  brierScore, calibrationError, curveOfChances, curveOfNumbers, pairAccuracy,
} from "../src/views/predictions/measures";
import { accuraciesOf } from "../src/views/predictions/rows";
import { random } from "./random";
import { traceOf } from "./world";

const forecast = (calls: number, at: number, session = "s"): ForecastEntry => ({
  kind: "forecast", request: session, session, at, calls,
  predictions: [{
    predictor: "table", decode_tokens: 10, decode_quantiles: [2, 9, 30], calls_left: 2.5, ends_now: 0.25,
    ends_within_3: 0.5, pause_seconds: 4, long_pause: null,
  }],
});
const pause = (at: number, seconds = 1, outcome = "resumed"): PauseEntry =>
  ({ kind: "pause", request: "s", session: "s", at, decoded_tokens: 7, outcome, pause_seconds: seconds });
const end = (at: number, calls: number, outcome = "stop"): SessionEntry =>
  ({ kind: "session", request: "s", session: "s", at, decoded_tokens: 40, calls, outcome });

/** What came, by quantity: calls so far and the value. */
function compared(...entries: Entry[]): Partial<Record<Quantity, [number, number][]>> {
  const found: Partial<Record<Quantity, [number, number][]>> = {};
  for (const pairs of traceOf(entries).outcomes.pairs.values()) {
    found[pairs.quantity] = pairs.segments.map((one, at) => [one.forecast.calls ?? 0, pairs.actual[at]]);
  }
  return found;
}

describe("a forecast", () => {
  test("is compared when its segment ends, and its calls when the session ends", () => {
    expect(compared(forecast(0, 0), forecast(1, 9), pause(2, 7), end(12, 1))).toEqual({
      decode_tokens: [[0, 7], [1, 40]], ends_now: [[0, 0], [1, 1]], pause_seconds: [[0, 7]],
      calls_left: [[0, 1], [1, 0]], ends_within_3: [[0, 1], [1, 1]],
    });
  });
  test("is known to have many calls left before the session ends", () => {
    const entries = [0, 1, 2, 3, 4, 5].flatMap((calls) => [forecast(calls, 10 * calls), pause(10 * calls + 5)]);
    expect(compared(...entries).ends_within_3).toEqual([[0, 0], [1, 0], [2, 0]]);
    expect(compared(...entries).calls_left).toBeUndefined();
  });
  test("is not compared where nothing is known", () => {
    expect(compared(pause(1))).toEqual({});
    expect(compared(forecast(0, 2), pause(1))).toEqual({});
    expect(compared(forecast(0, 0), end(1, 0, "abort"))).toEqual({});
    expect(compared(forecast(0, 0), pause(1, 60, "ended"))).toEqual({ decode_tokens: [[0, 7]], ends_now: [[0, 0]] });
  });
  test("is compared once, also where its end comes twice", () => {
    const outcomes = new Outcomes();
    outcomes.takeForecast(forecast(0, 0));
    outcomes.takeSession(end(3, 0));
    outcomes.takeSession(end(3, 0));
    expect(outcomes.pairs.get("decode_tokens table")?.actual).toEqual([40]);
  });
});

test("pair accuracy counts all pairs", () => {
  const next = random(3);
  const draw = (): number[] => Array.from({ length: 60 }, () => Math.floor(next() * 7));
  const [predicted, actual] = [draw(), draw()];
  let right = 0;
  let pairs = 0;
  for (let a = 0; a < 60; a++) {
    for (let b = 0; b < a; b++) {
      if (actual[a] === actual[b]) continue;
      pairs += 1;
      right += predicted[a] === predicted[b] ? 0.5 : Number(predicted[a] < predicted[b] === actual[a] < actual[b]);
    }
  }
  expect(pairAccuracy(predicted, actual)).toBeCloseTo(right / pairs, 12);
  expect(pairAccuracy([1, 2], [5, 5])).toBeNaN();
});

test("a calibration curve says what share came", () => {
  const [predicted, actual] = [[0.1, 0.1, 0.9, 1], [0, 1, 1, 1]];
  const curve = curveOfChances(predicted, actual);
  expect(curve).toEqual([{ count: 2, predicted: 0.1, actual: 0.5 }, { count: 2, predicted: 0.95, actual: 1 }]);
  expect(calibrationError(curve)).toBeCloseTo((2 * 0.4 + 2 * 0.05) / 4);
  expect(brierScore(predicted, actual)).toBeCloseTo((0.01 + 0.81 + 0.01) / 4);
  const numbers = Array.from({ length: 315 }, (_, n) => n);
  expect(curveOfNumbers(numbers, numbers).map((bin) => bin.count)).toEqual([...Array(9).fill(32), 27]);
  expect(curveOfNumbers([], [])).toEqual([]);
});

test("there is a row for each predictor and quantity, and its error over time", () => {
  const entries = Array.from({ length: 24 }, (_, n) => [forecast(0, n, `s${n}`),
    { ...end(100 + n, 0), request: `s${n}`, session: `s${n}`, decoded_tokens: 10 + n } as Entry]).flat();
  const rows = accuraciesOf(traceOf(entries).outcomes);
  expect(rows.map((row) => row.quantity)).toEqual(["decode_tokens", "calls_left", "ends_now", "ends_within_3"]);
  expect(rows[0]).toMatchObject({ count: 24, predicted: 10, actual: 21.5, error: 11.5, covered: 21 / 24 });
  expect(rows[0].spans.map((span) => span.error)).toEqual(Array.from({ length: 12 }, (_, n) => 2 * n + 0.5));
});
