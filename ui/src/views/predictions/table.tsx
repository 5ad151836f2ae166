// The table of predictors by what they predict; a row chooses what is drawn below.
import { count, number, percent } from "../../format";
import { type Quantity, isChance } from "../../model/outcomes";
import { visible } from "../session/content";
import type { Accuracy } from "./rows";
import { WORDS } from "./words";

const HEADS: readonly [name: string, meaning: string][] = [
  ["compared", "Predictions whose truth is known"],
  ["predicted", "Mean of what was predicted"],
  ["came", "Mean of what came; of an event, how often it came"],
  ["error", "Mean absolute error; of an event, the Brier score (0 is perfect)"],
  ["in order", "Share of pairs that the predictions order rightly; of an event, the AUC. 0.5 is chance"],
  ["miscalibrated", "Mean distance of the calibration curve from what came"],
  ["within 10–90 %", "Share that came between the predicted 10 and 90 % quantiles; 80 % is right"],
];

export function AccuracyTable({ rows, picked, onPick }: {
  rows: readonly Accuracy[]; picked: Quantity; onPick: (quantity: Quantity) => void;
}) {
  return (
    <div class="panel predictions-table">
      <table>
        <caption class="hidden-visually">Predictors by what they predict</caption>
        <thead><tr>
          <th>quantity</th>
          <th>predictor</th>
          {HEADS.map(([name, meaning]) => <th key={name} class="num" title={meaning}>{name}</th>)}
        </tr></thead>
        <tbody>
          {rows.map((row, at) => (
            <tr key={`${row.quantity} ${row.predictor}`} aria-selected={row.quantity === picked}
              data-testid={`accuracy-${row.quantity}-${row.predictor}`}>
              <td>{rows[at - 1]?.quantity !== row.quantity && (
                <button class="plain name" title={WORDS[row.quantity].meaning} aria-pressed={row.quantity === picked}
                  onClick={() => onPick(row.quantity)}>{WORDS[row.quantity].name}</button>
              )}</td>
              <th scope="row">{visible(row.predictor)}</th>
              <td class="num">{count(row.count)}</td>
              <td class="num">{WORDS[row.quantity].value(row.predicted)}</td>
              <td class="num">{WORDS[row.quantity].value(row.actual)}</td>
              <td class="num">{isChance(row.quantity) ? number(row.error) : WORDS[row.quantity].value(row.error)}</td>
              <td class="num">{number(row.order)}</td>
              <td class="num">{WORDS[row.quantity].value(row.away)}</td>
              <td class="num">{row.covered === null ? "" : percent(row.covered)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
