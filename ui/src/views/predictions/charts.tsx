// One quantity: what was predicted against what came, its calibration, and its error over time.
import { useMemo } from "preact/hooks";
import { go, setQuery } from "../../app/router";
import { Lines, LinesLegend, type Series } from "../../charts/lines";
import { linearScale } from "../../charts/scale";
import { Scatter } from "../../charts/scatter";
import { largest, smallest } from "../../charts/stats";
import { counted, moment, number, short } from "../../format";
import { isChance } from "../../model/outcomes";
import { visible } from "../session/content";
import type { Accuracy } from "./rows";
import { WORDS, cameOf } from "./words";

/** On a logarithmic axis 0 calls are drawn here. */
const NOTHING = 0.5;
/** Dots that are drawn; of more, the last. */
const MOST_DOTS = 5000;

export function QuantityCharts({ rows, shown }: { rows: readonly Accuracy[]; shown: Accuracy }) {
  const chance = isChance(shown.quantity);
  return (
    <div class="predictions-detail">
      {!chance && (
        <section class="panel">
          <h3>Predicted against actual</h3>
          <Actual rows={rows} row={shown} />
        </section>
      )}
      <section class="panel">
        <h3>Calibration</h3>
        <Calibration rows={rows} />
      </section>
      <section class="panel">
        <h3>Error over time</h3>
        <OverTime rows={rows} />
      </section>
    </div>
  );
}

function Actual({ rows, row }: { rows: readonly Accuracy[]; row: Accuracy }) {
  const { pairs, quantity } = row;
  const words = WORDS[quantity];
  const first = Math.max(0, row.count - MOST_DOTS);
  const drawn = (values: readonly number[]): number[] => values.slice(first).map((value) => value || NOTHING);
  const across = useMemo(() => drawn(pairs.actual), [pairs, row.count]);
  const up = useMemo(() => drawn(pairs.predicted), [pairs, row.count]);
  return (
    <>
      {rows.length > 1 && (
        <label class="small">Predictor{" "}
          <select value={row.predictor} onChange={(event) => setQuery({ predictor: event.currentTarget.value })}>
            {rows.map((one) => <option key={one.predictor} value={one.predictor}>{visible(one.predictor)}</option>)}
          </select>
        </label>
      )}
      <Scatter across={across} up={up} acrossName="actual (log)" upName="predicted (log)" format={short} height={260}
        label={`${words.name}: predicted against actual of ${counted(row.count, "prediction")}, mean absolute error ${words.value(row.error)}`}
        describe={(point) => `predicted ${words.value(pairs.predicted[first + point])}, was ${cameOf(quantity, pairs.actual[first + point])}`}
        onPick={(point) => go("predictions", [pairs.segments[first + point].session])} />
      <p class="small soft">
        A dot is a forecast; a click shows its session.
        {quantity === "calls_left" && " 0 calls are drawn at 0.5."}
        {first > 0 && ` The last ${counted(MOST_DOTS, "forecast")} are drawn.`}
      </p>
    </>
  );
}

function Calibration({ rows }: { rows: readonly Accuracy[] }) {
  const { quantity } = rows[0];
  const words = WORDS[quantity];
  const series = rows.map((row): Series => ({
    name: visible(row.predictor),
    points: row.curve.map((bin) => ({
      x: bin.predicted, y: bin.actual,
      about: `predicted ${words.value(bin.predicted)}, came ${words.value(bin.actual)}, ${counted(bin.count, "prediction")}`,
    })),
  }));
  const points = series.flatMap((one) => one.points);
  const most = isChance(quantity) ? 1 : largest(points.map((point) => Math.max(point.x, point.y)));
  const scale = linearScale(most || 1, 0, 1);
  const high = scale.ticks[scale.ticks.length - 1];
  return (
    <>
      <Lines series={series} from={0} to={high} ticks={scale.ticks} top={most} diagonal acrossName="predicted"
        upName={isChance(quantity) ? "how often it came" : "mean of what came"} formatX={words.value} formatY={words.value}
        label={`Calibration of ${words.name}. ${rows.map((row) => `${row.predictor}: ${words.value(row.away)} away`).join(", ")}`} />
      <LinesLegend names={series.map((one) => one.name)} />
      <p class="small soft">On the straight line, what was predicted came on average.</p>
    </>
  );
}

function OverTime({ rows }: { rows: readonly Accuracy[] }) {
  const { quantity } = rows[0];
  const said = isChance(quantity) ? number : WORDS[quantity].value;
  const series = rows.map((row): Series => ({
    name: visible(row.predictor),
    points: row.spans.map((span) => ({
      x: (span.from + span.at) / 2, y: span.error, about: `${said(span.error)}, ${moment(span.from, 0)} to ${moment(span.at, 0)}`,
    })),
  }));
  const all = rows.flatMap((row) => row.spans);
  const from = smallest(all.map((span) => span.from));
  const to = largest(all.map((span) => span.at));
  return (
    <>
      <Lines series={series} from={from} to={to} ticks={from < to ? [from + (to - from) * 0.15, from + (to - from) * 0.85] : [from]}
        top={largest(all.map((span) => span.error))} acrossName="when it was predicted"
        upName={isChance(quantity) ? "Brier score" : "mean absolute error"} formatX={(time) => moment(time, 0)} formatY={said}
        label={`Error of ${WORDS[quantity].name} over time. ${rows.map((row) => `${row.predictor}: ${said(row.spans[0]?.error)} at first, ${said(row.spans.at(-1)?.error)} at last`).join(", ")}`} />
      <LinesLegend names={series.map((one) => one.name)} />
      <p class="small soft">Each mark stands for as many predictions.</p>
    </>
  );
}
