// Percentiles of what requests took, and how many tokens the engine computed a second.
import { count, duration, number } from "../../format";
import { visible } from "../session/content";
import type { Shown } from "./shown";
import { MEASURES, type Percentiles, firstOutputs, percentilesOf, tokensIn } from "./summary";

const OUTPUT = "What the client waited for: from the beginning of a run until the first output of its first turn. It comes later than the first token where a text could still become a call, and is known of runs of the runtime";

export function Figures({ trace, ended, t0, t1 }: Shown) {
  const outputs = percentilesOf(firstOutputs(trace.runs, t0, t1));
  const rows = MEASURES.map(({ id, name, meaning, of }) => ({ id, name, meaning, found: percentilesOf(ended.map(of)) }));
  if (outputs.count) rows.splice(1, 0, { id: "first-output", name: "First output", meaning: OUTPUT, found: outputs });
  return (
    <section class="panel ov-figures" aria-label="Figures">
      <table>
        <thead>
          <tr><th>of requests that ended here</th><th class="num">p50</th><th class="num">p95</th><th class="num">p99</th><th class="num" title="Requests that have the figure">of</th></tr>
        </thead>
        <tbody>
          {rows.map(({ id, name, meaning, found }) => <Row key={id} id={id} name={name} meaning={meaning} found={found} />)}
        </tbody>
      </table>
      {trace.parts.map((part, place) => <Throughput key={place} {...tokensIn(part.steps, t0, t1)} known={part.steps.length > 0} server={part.server} />)}
    </section>
  );
}

function Row({ id, name, meaning, found }: { id: string; name: string; meaning: string; found: Percentiles }) {
  return (
    <tr data-testid={`ov-${id}`}>
      <th scope="row" title={meaning}>{name}</th>
      {[found.p50, found.p95, found.p99].map((value, place) => <td key={place} class="num">{duration(value)}</td>)}
      <td class="num muted">{count(found.count)}</td>
    </tr>
  );
}

function Throughput(props: { decoded: number; prefilled: number; recomputed: number; busy: number; known: boolean; server: string }) {
  const { decoded, prefilled, recomputed, busy, known, server } = props;
  if (!known) return <p class="small soft">{server && `${visible(server)}: `}No steps are recorded, so nothing is known of tokens per second.</p>;
  const all = [["decoded", decoded], ["prefilled", prefilled], ["recomputed", recomputed]] as const;
  return (
    <dl class="ov-tokens" aria-label={server || undefined} title="Tokens per second of the time in which steps ran; a step that reaches over the stretch's edge counts with its part within">
      {server && <div><dt>server</dt><dd><b>{visible(server)}</b></dd></div>}
      {all.map(([name, tokens]) => (
        <div key={name} data-testid={`ov-${name}`}>
          <dt>{name}</dt>
          <dd><b>{number(busy > 0 ? tokens / busy : 0)}</b> tok/s <span class="muted">{count(Math.round(tokens))}</span></dd>
        </div>
      ))}
      <div><dt>steps ran for</dt><dd><b>{duration(busy)}</b></dd></div>
    </dl>
  );
}
