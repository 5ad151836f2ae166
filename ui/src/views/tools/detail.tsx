// One tool, or all of them together: distribution, predictions, failures, regret by handling.
import { useMemo } from "preact/hooks";
import { current, nowOf } from "../../app/state";
import { go, link } from "../../app/router";
import { Histogram } from "../../charts/histogram";
import { Scatter } from "../../charts/scatter";
import { secondsTick } from "../../charts/scale";
import { largest, logBins, quantile } from "../../charts/stats";
import { blockSeconds, count, counted, duration, percent } from "../../format";
import { SHARE_MEANINGS, shareName } from "../request/pausesplit";
import { sharesOf } from "../../causes/split";
import { type ToolRow, byHandling, compared, failuresOf } from "./rows";
import { factor, nameOf } from "./table";

export function Detail({ row, all }: { row: ToolRow; all: boolean }) {
  return (
    <>
      <h2 class="tools-title" data-testid="tools-title">
        {all ? "All tools" : nameOf(row.tool)}
        <span class="muted small">{all ? "choose one above" : counted(row.pauses.length, "pause")}</span>
      </h2>
      <div class="tools-detail">
        <section class="panel">
          <h3>How long it pauses a request</h3>
          <Durations row={row} />
          <h3 class="tools-next">Who took that time</h3>
          <Shares row={row} />
        </section>
        <section class="panel">
          <h3>Predicted against actual</h3>
          <Predictions row={row} />
        </section>
        <section class="panel">
          <h3>What it cost, by handling</h3>
          <Handlings row={row} />
          <h3 class="tools-next">Failed calls</h3>
          <Failures row={row} />
        </section>
      </div>
    </>
  );
}

function Durations({ row }: { row: ToolRow }) {
  const wide = row.seconds.length ? Math.log10(row.seconds[row.seconds.length - 1] / row.seconds[0]) : 0;
  const bins = useMemo(() => logBins(row.seconds, wide > 2.5 ? 5 : 12), [row]);
  if (!row.seconds.length) return <p class="muted">No pause has ended with a result yet.</p>;
  return (
    <>
      <Histogram bins={bins} counted="pauses" axis="pause, until the result came (log)" format={duration} tickFormat={secondsTick} height={280}
        marks={[{ label: "p50", value: row.p50 }, { label: "p90", value: row.p90 }, { label: "p99", value: row.p99 }]} />
      <p class="small soft">
        p50 <b>{duration(row.p50)}</b>, p90 <b>{duration(row.p90)}</b>, p99 <b>{duration(row.p99)}</b>,
        longest <b>{duration(row.seconds[row.seconds.length - 1])}</b>
      </p>
    </>
  );
}

/** Of a pause, the tool took a part only: the rest went to people, to the runtime and to the step that ran. */
function Shares({ row }: { row: ToolRow }) {
  const loaded = current.value;
  // The row is made anew at a pace; every pause is looked at only then.
  const shares = useMemo(() => (loaded ? sharesOf(loaded.trace, row.pauses, nowOf(loaded)) : null), [row]);
  if (!shares?.rows.length) {
    return <p class="muted small">No pause that resumed has a span of its call: of tools that clients run only the pause is seen.</p>;
  }
  return (
    <>
      <table data-testid="tool-shares">
        <thead><tr><th>of {counted(shares.pauses, "pause")}</th><th class="num">p50</th><th class="num">p95</th><th class="num">p99</th><th class="num">of their time</th></tr></thead>
        <tbody>
          {shares.rows.map(({ share, p50, p95, p99, part }) => (
            <tr key={share} data-testid={`share-${share}`}>
              <th scope="row" title={SHARE_MEANINGS[share]}>{shareName(share, shares.exact)}</th>
              <td class="num">{duration(p50)}</td><td class="num">{duration(p95)}</td><td class="num">{duration(p99)}</td>
              <td class="num">{percent(part)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {row.own.length > 0 && (
        <p class="small soft">
          Calls by themselves, also beside decoding: p50 <b>{duration(row.own50)}</b>, p95 <b>{duration(quantile(row.own, 0.95))}</b>,
          p99 <b>{duration(quantile(row.own, 0.99))}</b>
        </p>
      )}
    </>
  );
}

function Predictions({ row }: { row: ToolRow }) {
  const pairs = useMemo(() => compared(row.pauses), [row]);
  const across = useMemo(() => pairs.map((pause) => pause.seconds ?? NaN), [pairs]);
  const up = useMemo(() => pairs.map((pause) => pause.predictedSeconds ?? NaN), [pairs]);
  if (!pairs.length) return <p class="muted">No pause has a prediction and a result to compare it with.</p>;
  const { median, low, high, within, count: known } = row.misjudged;
  const said = `Median ${factor(median)}, 10 to 90 %: ${factor(low)} to ${factor(high)}, ${percent(within)} within a factor of two`;
  return (
    <>
      <Scatter across={across} up={up} acrossName="actual (log)" upName="predicted (log)" format={secondsTick} height={280}
        label={`Predicted against actual durations of ${counted(known, "pause")}. ${said}`}
        describe={(point) => `${nameOf(pairs[point].tool ?? "")}: predicted ${duration(up[point])}, was ${duration(across[point])}`}
        onPick={(point) => go("decision", [pairs[point].request, String(pairs[point].at)])} />
      <p class="small soft" data-testid="misjudged">
        Predicted is <b>{factor(median)}</b> of actual (median); 10 to 90 %: <b>{factor(low)}</b> to{" "}
        <b>{factor(high)}</b>; <b>{percent(within)}</b> within a factor of two, which is between the dotted lines.
      </p>
    </>
  );
}

/** What is no handling. */
const OTHERS: Record<string, string> = { none: "no follow-up came", followed: "followed by a new request" };

function Handlings({ row }: { row: ToolRow }) {
  const handled = byHandling(row.pauses);
  if (!handled.length) return <p class="muted">No pause has ended yet.</p>;
  const most = largest(handled.map((one) => one.regret || 0), 0);
  return (
    <table>
      <thead><tr><th>handling</th><th class="num">pauses</th><th class="num">cost</th><th class="num">regret</th><th><span class="hidden-visually">regret as a bar</span></th></tr></thead>
      <tbody>
        {handled.map((one) => (
          <tr key={one.handling} data-testid={`handling-${one.handling}`}>
            <th scope="row">{OTHERS[one.handling] ?? one.handling}</th>
            <td class="num">{count(one.pauses)}</td>
            <td class="num">{blockSeconds(one.cost)}</td>
            <td class="num">{blockSeconds(one.regret)}</td>
            <td class="tools-bar"><span style={{ width: `${most > 0 ? ((one.regret || 0) / most) * 100 : 0}%` }} /></td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Failures({ row }: { row: ToolRow }) {
  if (!row.calls.length) {
    return <p class="muted small">The recording has no spans of calls. The runtime writes them for the tools that it
      runs itself; what a client does with its calls is not seen.</p>;
  }
  const kinds = failuresOf(row.calls);
  if (!kinds.length) return <p class="small">None of {counted(row.calls.length, "call")} failed.</p>;
  return (
    <table>
      <thead><tr><th>kind</th><th class="num">calls</th><th class="num">of all</th></tr></thead>
      <tbody>
        {kinds.map(([kind, calls]) => (
          <tr key={kind} data-testid={`failure-${kind}`}>
            <th scope="row" class="mono"><a href={link("errors", [], { "er.q": row.tool })}>{kind}</a></th>
            <td class="num">{count(calls)}</td>
            <td class="num">{percent(calls / row.calls.length)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
