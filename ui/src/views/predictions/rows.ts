// A row for each quantity and predictor: how good the predictions were, over all and over time.
import { mean } from "../../charts/stats";
import { type Outcomes, type Pairs, QUANTITIES, type Quantity, isChance } from "../../model/outcomes";
import {
  type CurveBin, absoluteError, brierScore, calibrationError, curveOfChances, curveOfNumbers, pairAccuracy,
} from "./measures";

/** Pairs from which the order is computed; of more, as many that are evenly spread. */
const MOST = 5000;
/** Spans of time over which an error is followed; each has as many predictions. */
const SPANS = 12;

/** The error within a span of time that ends at `at`. */
export interface SpanError {
  from: number;
  at: number;
  error: number;
}

export interface Accuracy {
  quantity: Quantity;
  predictor: string;
  pairs: Pairs;
  count: number;
  /** Means of what was predicted, and of what came. */
  predicted: number;
  actual: number;
  /** The mean absolute error; of an event, the Brier score. */
  error: number;
  /** The share of pairs in the right order; of an event, the AUC. */
  order: number;
  away: number;
  /** The share between the predicted 10 and 90 % quantiles; null without them. */
  covered: number | null;
  curve: CurveBin[];
  spans: SpanError[];
}

/** Return the rows in the order of the quantities, and of the predictors' names. */
export function accuraciesOf(outcomes: Outcomes): Accuracy[] {
  const rows = [...outcomes.pairs.values()].map(accuracy);
  return rows.sort((a, b) =>
    QUANTITIES.indexOf(a.quantity) - QUANTITIES.indexOf(b.quantity) || a.predictor.localeCompare(b.predictor));
}

function accuracy(pairs: Pairs): Accuracy {
  const { quantity, predictor, predicted, actual } = pairs;
  const chance = isChance(quantity);
  const errorOf = chance ? brierScore : absoluteError;
  const curve = (chance ? curveOfChances : curveOfNumbers)(predicted, actual);
  const step = Math.max(1, Math.ceil(predicted.length / MOST));
  const some = (values: number[]): number[] => (step === 1 ? values : values.filter((_, at) => at % step === 0));
  return {
    quantity, predictor, pairs, curve,
    count: predicted.length,
    predicted: mean(predicted),
    actual: mean(actual),
    error: errorOf(predicted, actual),
    order: pairAccuracy(some(predicted), some(actual)),
    away: calibrationError(curve),
    covered: pairs.ranged ? pairs.within / pairs.ranged : null,
    spans: spansOf(pairs, errorOf),
  };
}

function spansOf(pairs: Pairs, errorOf: (p: number[], a: number[]) => number): SpanError[] {
  const order = pairs.at.map((_, at) => at).sort((a, b) => pairs.at[a] - pairs.at[b]);
  const size = Math.max(1, Math.ceil(order.length / SPANS));
  const spans: SpanError[] = [];
  for (let first = 0; first < order.length; first += size) {
    const part = order.slice(first, first + size);
    spans.push({
      from: pairs.at[part[0]],
      at: pairs.at[part[part.length - 1]],
      error: errorOf(part.map((at) => pairs.predicted[at]), part.map((at) => pairs.actual[at])),
    });
  }
  return spans;
}
