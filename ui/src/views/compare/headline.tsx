// The headline table: each figure of A and B, how they differ, and in words which is better.
import { blockSeconds, count, duration, number, ratio } from "../../format";
import { type Figure, METRICS, type Metric, type Verdict, verdict } from "./metrics";

/** `judged`: say which is better, which only sessions that are the same on both sides can show. */
export function Headline({ a, b, judged }: { a: Record<string, Figure>; b: Record<string, Figure>; judged: boolean }) {
  return (
    <table class="headline" data-testid="headline">
      <caption class="hidden-visually">Figures of A and B</caption>
      <thead><tr>
        <th>figure</th><th class="num"><span class="badge a">A</span></th><th class="num"><span class="badge b">B</span></th>
        <th class="num">B − A</th><th class="num">B ÷ A</th><th>better</th>
      </tr></thead>
      <tbody>
        {METRICS.map((metric) => <Row key={metric.id} metric={metric} a={a[metric.id]} b={b[metric.id]} judged={judged} />)}
      </tbody>
    </table>
  );
}

function Row({ metric, a, b, judged }: { metric: Metric; a: Figure; b: Figure; judged: boolean }) {
  const both = "value" in a && "value" in b;
  const who = judged ? verdict(metric, a, b) : "";
  return (
    <tr data-testid={`metric-${metric.id}`}>
      <th scope="row"><abbr title={metric.definition} tabIndex={0}>{metric.name}</abbr></th>
      <Cell metric={metric} figure={a} best={who === "A"} name="a" />
      <Cell metric={metric} figure={b} best={who === "B"} name="b" />
      <td class="num" data-testid="difference">{both ? signed(metric, b.value - a.value) : ""}</td>
      <td class="num" data-testid="ratio">{both && a.value !== 0 ? ratio(b.value, a.value) : ""}</td>
      <td data-testid="better">{worded(who)}</td>
    </tr>
  );
}

function Cell({ metric, figure, best, name }: { metric: Metric; figure: Figure; best: boolean; name: string }) {
  if ("why" in figure) return <td class="num why" data-testid={name}>not known: {figure.why}</td>;
  return <td class={best ? "num best" : "num"} data-testid={name}>{written(metric, figure.value)}</td>;
}

function worded(who: Verdict): string {
  if (who === "") return "";
  return who === "same" ? "same" : `${who} is better`;
}

/** A value with its unit. */
export function written(metric: Metric, value: number): string {
  switch (metric.unit) {
    case "seconds": return duration(value);
    case "seconds per token": return `${duration(value)}/token`;
    case "per second": return `${value !== 0 && Math.abs(value) < 0.001 ? value.toPrecision(2) : number(value)}/s`;
    case "block-seconds": return blockSeconds(value);
    default: return count(value);
  }
}

function signed(metric: Metric, value: number): string {
  if (value === 0) return "0";
  return `${value > 0 ? "+" : "−"}${written(metric, Math.abs(value))}`;
}
