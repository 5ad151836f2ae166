// Predictions: how good each predictor is at what it predicts, over all, over time and for one session.
import { useMemo } from "preact/hooks";
import { route, setQuery } from "../../app/router";
import { current, trace, version } from "../../app/state";
import "../../charts/charts.css";
import { QUANTITIES, type Quantity } from "../../model/outcomes";
import { usePaced } from "../overview/paced";
import { QuantityCharts } from "./charts";
import "./predictions.css";
import { type Accuracy, accuraciesOf } from "./rows";
import { SessionForecasts } from "./session";
import { AccuracyTable } from "./table";

/** All pairs are compared for the order: of a live recording this often, in milliseconds. */
const PACE = 3000;

export function PredictionsView() {
  const shown = trace.value;
  const made = usePaced(version.value, PACE);
  const rows = useMemo(() => (shown ? accuraciesOf(shown.outcomes) : []), [shown, made]);
  if (!shown) return null;
  if (!shown.outcomes.sessions.size) return <NoForecasts />;
  const { quantity: wanted = "", predictor = "" } = route.value.query;
  const quantity = quantityOf(wanted, rows);
  const chosen = rows.filter((row) => row.quantity === quantity);
  const one = chosen.find((row) => row.predictor === predictor) ?? chosen[0];
  return (
    <div class="view predictions" data-testid="predictions">
      {rows.length > 0
        ? <AccuracyTable rows={rows} picked={quantity} onPick={(picked) => setQuery({ quantity: picked })} />
        : <p class="note" role="status">No forecast can be compared yet: what came is known when a segment or a session ends.</p>}
      {one && <QuantityCharts rows={chosen} shown={one} />}
      <SessionForecasts outcomes={shown.outcomes} session={route.value.path[0] ?? ""} quantity={quantity} />
      <p class="small soft">
        A session that goes on, or that was aborted, tells nothing of its number of calls. So a short recording knows more of short sessions.
      </p>
    </div>
  );
}

function quantityOf(wanted: string, rows: readonly Accuracy[]): Quantity {
  const known = rows.some((row) => row.quantity === wanted) || (QUANTITIES as readonly string[]).includes(wanted);
  return known ? (wanted as Quantity) : (rows.find((row) => row.quantity === "calls_left")?.quantity ?? rows[0]?.quantity ?? "decode_tokens");
}

function NoForecasts() {
  const coarse = current.value?.recording.about.lanes === "coarse";
  return (
    <div class="center">
      <div class="card panel">
        <h2>Nothing was predicted</h2>
        <p>{coarse
          ? "vLLM's own scheduler predicts nothing. Another policy of this simulation may have forecasts."
          : "This recording holds no forecasts. Older versions did not record them."}</p>
      </div>
    </div>
  );
}
