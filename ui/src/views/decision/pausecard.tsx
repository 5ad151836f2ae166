// One pause in full: what was expected, priced and done, what came of it, and how it came back.
import { blockSeconds, count, counted, duration, mebibytes, moment, percent } from "../../format";
import { link } from "../../app/router";
import { current, nowOf, version } from "../../app/state";
import type { Pause } from "../../model/pause";
import type { Inputs } from "../../model/records";
import { Called } from "../session/called";
import { around } from "../timeline/zoom";
import { PauseSplit } from "../request/pausesplit";
import { cheapest, estimateOf } from "./chosen";
import { Wanting } from "./wanting";
import { type Figure, Figures } from "./figures";
import { PriceChart } from "./prices";
import { DEEDS, INPUTS, type Unit, handlingOf, outcomeOf, whyOf } from "./words";

export function PauseCard({ pause, wide = false }: { pause: Pause; wide?: boolean }) {
  version.value;
  const lane = current.value?.trace.byRequest.get(pause.request);
  return (
    <article class={wide ? "dc-card dc-wide" : "dc-card"}>
      <div class="dc-part">
        <Verdict pause={pause} />
        <h3>Expected and actual length</h3>
        <Lengths pause={pause} />
        <PauseSplit pause={pause} />
        <h3>Price of each alternative</h3>
        <PriceChart pause={pause} lane={lane} />
        <h3>What was done</h3>
        <Done pause={pause} />
        <h3>How it came back</h3>
        <Back pause={pause} />
      </div>
      <div class="dc-part">
        <h3>What the policy saw</h3>
        <InputTable inputs={pause.inputs} />
      </div>
    </article>
  );
}

function Verdict({ pause }: { pause: Pause }) {
  const { end } = pause;
  const { regret } = pause;
  if (!end) return <p class="dc-verdict">This pause is open. What it cost is known when it ends.</p>;
  if (pause.free) {
    return <p class="dc-verdict"><b class="good">Memory was free throughout:</b> keeping the KV cost nothing.</p>;
  }
  if (regret === null) {
    return (
      <p class="dc-verdict">
        KV was {handlingOf(pause)}; {outcomeOf(pause)}.{" "}
        {pause.pricedOtherwise
          ? "An earlier version recorded it, which priced memory by another measure. So its regret is not shown."
          : "Its cost was not recorded."}
      </p>
    );
  }
  const best = cheapest(pause.hindsight);
  const right = regret <= 1e-9;
  return (
    <div class="dc-verdict">
      <p>
        <b class={right ? "good" : "bad"}>{right ? "No regret." : `Regret ${blockSeconds(regret)}.`}</b>{" "}
        It cost {blockSeconds(pause.cost)}
        {right || !best ? ", and nothing would have been cheaper." : `; ${DEEDS[best]} would have cost ${blockSeconds(pause.hindsight?.[best])}.`}
      </p>
      <Wanting pause={pause} />
      <Parts pause={pause} />
    </div>
  );
}

/** What its cost is made of, and how it becomes the regret. */
function Parts({ pause }: { pause: Pause }) {
  const { parts, regret, cost } = pause;
  if (!parts || regret === null || cost === null) return null;
  const best = cheapest(pause.hindsight);
  const rows: Figure[] = [
    ["Memory while paused", blockSeconds(parts.paused), "Blocks that it held until its result came, as far as others wanted them."],
    ["Memory while it queued", blockSeconds(parts.queued), "Blocks that it held from its result until it ran, as far as others wanted them."],
    ["Loading and recomputing", blockSeconds(parts.work), "What it cost to bring its KV back."],
    ["Cost", <b>{blockSeconds(cost)}</b>, "The sum of these."],
  ];
  if (best) rows.push([`Least: ${DEEDS[best]}`, blockSeconds(pause.hindsight?.[best]), "What the cheapest alternative would have cost. Regret is what the pause cost beyond it."]);
  return <div class="dc-parts" aria-label="Parts of the cost"><Figures figures={rows} /></div>;
}

function Lengths({ pause }: { pause: Pause }) {
  const loaded = current.value;
  const open = pause.seconds === null;
  const actual = pause.seconds ?? Math.max(0, (loaded ? nowOf(loaded) : pause.at) - pause.at);
  const predicted = pause.predictedSeconds;
  const most = Math.max(actual, predicted ?? 0, 1e-9);
  const line = (name: string, seconds: number | null, kind: string, note: string) => (
    <div class="dc-length">
      <span>{name}</span>
      <div class="dc-track"><i class={kind} style={{ width: `${(100 * (seconds ?? 0)) / most}%`, color: "var(--ink-2)" }} /></div>
      <span class="num">{duration(seconds)}</span>
      <span class="dc-note">{note}</span>
    </div>
  );
  return (
    <div class="dc-lengths">
      {line("expected", predicted, "dc-hollow", pause.deadlineSeconds ? `deadline ${duration(pause.deadlineSeconds)}` : "")}
      {line(open ? "so far" : "actual", actual, "dc-solid", open ? "open" : estimateOf(pause))}
    </div>
  );
}

function Done({ pause }: { pause: Pause }) {
  const { decisions } = pause;
  if (!decisions.length) {
    return (
      <p class="small soft">
        {pause.end ? "Nothing: its blocks stayed on the device." : "What is done is recorded when the pause ends; its lane shows it already."}
      </p>
    );
  }
  return (
    <table>
      <thead><tr><th class="num">after</th><th>what</th><th class="num">blocks</th><th>because</th></tr></thead>
      <tbody>
        {decisions.slice(0, 200).map(([seconds, act, blocks, why, , , , whom], i) => (
          <tr key={i}>
            <td class="num">{duration(seconds)}</td>
            <td>{act === "swap" ? "▴ swapped" : act !== "discard" ? act : blocks ? "▾ released" : "▾ released what it shared"}</td>
            <td class="num">{count(blocks)}</td>
            <td>
              {whyOf(why) || <span class="muted">not recorded</span>}
              {whom && <>: <a href={link("timeline", [], { sel: whom, ...windowOf(pause, seconds) })}><Called request={whom} most={32} /></a></>}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** The timeline's window around a decision of a pause. */
function windowOf(pause: Pause, seconds: number): { t0: string; t1: string } {
  const { t0, t1 } = around(pause.at + seconds - 1, pause.at + seconds + 1, 0.5);
  return { t0: String(t0), t1: String(t1) };
}

function Back({ pause }: { pause: Pause }) {
  const { end } = pause;
  const figures: Figure[] = [["Outcome", outcomeOf(pause)]];
  if (end) {
    const context = end.context_tokens ?? 0;
    const cached = Math.max(0, context - (end.loaded_tokens ?? 0) - (end.recomputed_tokens ?? 0));
    const share = (tokens: number | undefined): string =>
      context ? `${count(tokens)} (${percent((tokens ?? 0) / context)})` : count(tokens);
    figures.push(["KV was", handlingOf(pause)]);
    // What a follow-up found of the context is told by its own lane.
    if (pause.outcome === "resumed") {
      figures.push(
        ["Tokens still there", share(cached), "Context that was on the device or that the prefix cache still had."],
        ["Tokens loaded", share(end.loaded_tokens), "Context that was loaded from the host."],
        ["Tokens recomputed", share(end.recomputed_tokens), "Context that was computed again."],
        ["Queued", duration(end.queue_seconds), "From the result until it ran."],
      );
    }
  }
  figures.push(["Context", `${count(pause.contextTokens)} tokens`], ["Blocks of its own", held(pause), "Blocks of all groups of layers on the device that would be free if it gave them up."], ["Began", moment(pause.at)]);
  return <Figures figures={figures} />;
}

/** Its blocks, and their size where the recording tells it. */
function held(pause: Pause): string {
  const size = pause.opening?.bytes;
  return counted(pause.blocks, "block") + (typeof size === "number" ? ` (${mebibytes(size)})` : "");
}

function InputTable({ inputs }: { inputs: Inputs | null }) {
  if (!inputs) return <p class="small soft">Not recorded: records of this age lack what the handling saw.</p>;
  const known = INPUTS.filter(([key]) => inputs[key] !== undefined && inputs[key] !== null);
  return <Figures figures={known.map(([key, name, unit, meaning]) => [name, shown(inputs[key], unit), meaning])} />;
}

function shown(value: number | boolean | null | undefined, unit: Unit): string {
  if (unit === "yes") return value ? "yes" : "no";
  if (unit === "seconds") return duration(value as number);
  return counted(value as number, unit.slice(0, -1));
}
