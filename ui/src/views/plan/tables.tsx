// What the chart shows, as tables: stages planned and real, what was planned anew, and every block.
import { toggle } from "../../app/address";
import { duration } from "../../format";
import { visible } from "../session/content";
import type { Panel } from "./chart";
import type { Change, StageRow } from "./stages";
import { DOES, difference, placed, seconds } from "./words";

const BLOCKS = toggle("plan.blocks");

export function StageTable({ rows, several }: { rows: readonly StageRow[]; several: boolean }) {
  return (
    <section class="panel plan-table">
      <h3>Stages</h3>
      <table data-testid="plan-stages">
        <caption class="hidden-visually">Stages of the plan with their planned and their real times</caption>
        <thead><tr>
          {several && <th class="num">plan</th>}
          <th class="num">stage</th>
          <th>models</th>
          <th class="num">planned</th>
          <th class="num">real</th>
          <th class="num">took, planned</th>
          <th class="num">took</th>
          <th class="num" title="How much longer the stage took than planned">difference</th>
        </tr></thead>
        <tbody>{rows.map((row) => <Stage key={`${row.plan} ${row.stage}`} row={row} several={several} />)}</tbody>
      </table>
    </section>
  );
}

function Stage({ row, several }: { row: StageRow; several: boolean }) {
  const { planned, real, state } = row;
  const expected = planned.until - planned.since;
  const took = real ? real.until - real.since : null;
  return (
    <tr data-testid="plan-stage">
      {several && <td class="num">{row.plan + 1}</td>}
      <th scope="row" class="num">{row.stage + 1}</th>
      <td>{placed(row.placements)}</td>
      <td class="num">{seconds(planned.since)} to {seconds(planned.until)}</td>
      <td class="num">{real ? `${seconds(real.since)} to ${state === "now" ? "now" : seconds(real.until)}` : state}</td>
      <td class="num">{seconds(expected)}</td>
      <td class="num">{took === null ? "–" : seconds(took)}</td>
      <td class="num">{took === null || state === "now" ? "–" : <Difference real={took} planned={expected} />}</td>
    </tr>
  );
}

/** Longer than planned is told by its sign and its words, besides the colour. */
export function Difference({ real, planned }: { real: number; planned: number }) {
  const longer = real > planned;
  return (
    <span class={longer ? "bad" : "good"}>
      {difference(real, planned)}<span class="hidden-visually">{longer ? " longer than planned" : " against the plan"}</span>
    </span>
  );
}

export function Changes({ changes }: { changes: readonly Change[] }) {
  return (
    <section class="panel plan-table">
      <h3>Planned anew</h3>
      <table data-testid="plan-changes">
        <caption class="hidden-visually">When another plan was made for what was left, and why</caption>
        <thead><tr>
          <th class="num">at</th>
          <th>why</th>
          <th>by</th>
          <th class="num">end expected before</th>
          <th class="num">since then</th>
        </tr></thead>
        <tbody>
          {changes.map((change, place) => (
            <tr key={place}>
              <th scope="row" class="num">{seconds(change.at)}</th>
              <td>{visible(change.why) || "not recorded"}</td>
              <td>{visible(change.strategy)}</td>
              <td class="num">{seconds(change.before)}</td>
              <td class="num">{seconds(change.after)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

/** Every block of the chart in words; open where the address says so. */
export function BlockTable({ panels }: { panels: readonly Panel[] }) {
  return (
    <details class="panel plan-table" open={BLOCKS.value} onToggle={(event) => (BLOCKS.value = event.currentTarget.open)}>
      <summary>The chart as a table</summary>
      {BLOCKS.value && (
        <table data-testid="plan-blocks">
          <caption class="hidden-visually">Blocks of the chart: which model has which device when</caption>
          <thead><tr>
            <th>chart</th>
            <th class="num">device</th>
            <th>model</th>
            <th>engine</th>
            <th class="num" title="Data parallelism: replicas of the model">replicas</th>
            <th class="num" title="Tensor parallelism: devices of each replica">devices each</th>
            <th>does</th>
            <th class="num">from</th>
            <th class="num">to</th>
            <th class="num">for</th>
          </tr></thead>
          <tbody>
            {panels.flatMap((panel) => panel.blocks.map((block, place) => (
              <tr key={`${panel.name} ${place}`}>
                <td>{panel.name}</td>
                <td class="num">{block.device}</td>
                <th scope="row">{visible(block.model)}</th>
                <td>{visible(block.replica) || "–"}</td>
                <td class="num">{block.replicas}</td>
                <td class="num">{block.tensorParallel}</td>
                <td>{DOES[block.what]}{block.lost !== null && <span class="bad">, lost: {visible(block.lost)}</span>}</td>
                <td class="num">{seconds(block.since)}</td>
                <td class="num">{block.open ? "now" : seconds(block.until)}</td>
                <td class="num">{duration(block.until - block.since)}</td>
              </tr>
            )))}
          </tbody>
        </table>
      )}
    </details>
  );
}
