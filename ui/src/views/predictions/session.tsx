// One session: what was predicted at each of its calls, and what came.
import { go, link } from "../../app/router";
import { brief, counted, moment } from "../../format";
import type { Outcomes, Quantity, Segment } from "../../model/outcomes";
import { visible } from "../session/content";
import { WORDS, cameOf } from "./words";

/** Sessions that can be chosen: the last ones. */
const MOST = 300;

export function SessionForecasts({ outcomes, session, quantity }: {
  outcomes: Outcomes; session: string; quantity: Quantity;
}) {
  const ids = [...outcomes.sessions.keys()].slice(-MOST).reverse();
  if (session && !ids.includes(session) && outcomes.sessions.has(session)) ids.unshift(session);
  const chosen = session || mostCalls(outcomes, ids);
  const segments = outcomes.sessions.get(chosen);
  return (
    <section class="panel predictions-session" data-testid="session-forecasts">
      <div class="row">
        <h3>At each call of a session: {WORDS[quantity].name}</h3>
        <span class="grow" />
        <select class="picker" aria-label="Session" value={chosen} onChange={(event) => go("predictions", [event.currentTarget.value])}>
          {!segments && <option value={chosen}>{visible(brief(chosen, 30))}</option>}
          {ids.map((id) => (
            <option key={id} value={id}>{visible(brief(id, 30))}, {counted(outcomes.sessions.get(id)?.length ?? 0, "segment")}</option>
          ))}
        </select>
        <a href={link("session", [chosen])}>Session</a>
      </div>
      {segments
        ? <Forecasts segments={segments} quantity={quantity} />
        : <p class="note" role="status">This recording has no forecasts of a session called {visible(session)}.</p>}
    </section>
  );
}

/** Of the sessions, the one with the most forecasts. */
function mostCalls(outcomes: Outcomes, ids: readonly string[]): string {
  let found = ids[0] ?? "";
  for (const id of ids) {
    if ((outcomes.sessions.get(id)?.length ?? 0) > (outcomes.sessions.get(found)?.length ?? 0)) found = id;
  }
  return found;
}

function Forecasts({ segments, quantity }: { segments: readonly Segment[]; quantity: Quantity }) {
  const names = [...new Set(segments.flatMap((one) => (one.forecast.predictions ?? []).map((row) => row.predictor ?? "")))];
  const valueOf = (segment: Segment, name: string) =>
    segment.forecast.predictions?.find((row) => (row.predictor ?? "") === name);
  return (
    <div class="predictions-scroll">
      <table>
        <caption class="hidden-visually">Forecasts of the session, by the number of its calls</caption>
        <thead><tr>
          <th class="num">calls so far</th>
          <th>when</th>
          <th>last tool</th>
          {names.map((name) => <th key={name} class="num">{visible(name)}</th>)}
          <th class="num">came</th>
        </tr></thead>
        <tbody>
          {segments.slice(0, 1000).map((segment, at) => (
            <tr key={at} data-testid="forecast-row">
              <th scope="row" class="num">{segment.forecast.calls ?? 0}</th>
              <td class="mono">{moment(segment.forecast.at, 1)}</td>
              <td>{visible(segment.forecast.features?.tool ?? "") || "–"}{segment.forecast.features?.last_error && <span class="bad"> error</span>}</td>
              {names.map((name) => {
                const row = valueOf(segment, name);
                return <td key={name} class="num">{WORDS[quantity].value(row?.[quantity])}{quantity === "decode_tokens" && <Range values={row?.decode_quantiles} />}</td>;
              })}
              <td class="num"><b>{cameOf(quantity, segment.actual[quantity])}</b></td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Range({ values = [] }: { values?: number[] }) {
  if (values.length < 2) return null;
  const say = WORDS.decode_tokens.value;
  return <span class="muted"> ({say(values[0])} to {say(values[values.length - 1])})</span>;
}
