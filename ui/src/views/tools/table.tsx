// The table of tools, sorted by the column that is chosen.
import { useState } from "preact/hooks";
import { link } from "../../app/router";
import { logScale } from "../../charts/scale";
import { SPREAD, Spread } from "../../charts/spread";
import { largest, quantile, smallest } from "../../charts/stats";
import { blockSeconds, count, duration, number, percent, short } from "../../format";
import { REGRET } from "../session/chip";
import { visible } from "../session/content";
import { type ToolKey, type ToolRow, ordered } from "./rows";

interface Column {
  key: ToolKey;
  name: string;
  meaning: string;
  text: (row: ToolRow) => string;
}

const COLUMNS: readonly Column[] = [
  { key: "count", name: "pauses", meaning: "Pauses of requests for this tool", text: (row) => count(row.pauses.length) },
  { key: "calls", name: "calls", meaning: "Calls that the runtime carried out; one pause may wait for several, and a client's calls are not seen",
    text: (row) => (row.calls.length ? count(row.calls.length) : "–") },
  { key: "failures", name: "failed", meaning: "Calls that ended with an error", text: (row) => (row.calls.length ? count(row.failures) : "–") },
  { key: "own50", name: "itself p50", meaning: "Half of its calls took less by themselves, without waiting for people; the pause of the request is longer",
    text: (row) => duration(row.own50) },
  { key: "p50", name: "pause p50", meaning: "Half of the pauses were shorter", text: (row) => duration(row.p50) },
  { key: "p90", name: "p90", meaning: "Nine of ten pauses were shorter", text: (row) => duration(row.p90) },
  { key: "p99", name: "p99", meaning: "99 of 100 pauses were shorter", text: (row) => duration(row.p99) },
  { key: "bias", name: "predicted ÷ actual", meaning: "Median of the predicted by the actual duration: 1 is right, 2 is twice too long",
    text: (row) => factor(row.misjudged.median) },
  { key: "within", name: "within 2×", meaning: "Part of the predictions that were off by less than a factor of two",
    text: (row) => percent(row.misjudged.within) },
  { key: "totalCost", name: "cost", meaning: "Block-seconds that all its pauses cost others and themselves. A block-second is one block of KV cache that another request wanted for a second", text: (row) => blockSeconds(row.totalCost) },
  { key: "cost", name: "a pause", meaning: "Block-seconds that a pause cost others and itself, on average", text: (row) => blockSeconds(row.cost) },
  { key: "regret", name: "regret", meaning: REGRET,
    text: (row) => blockSeconds(row.regret) },
  { key: "resultTokens", name: "result tokens", meaning: "Tokens that its results brought into contexts", text: (row) => short(row.resultTokens) },
  { key: "recomputed", name: "recomputed", meaning: "Tokens of context that were computed again behind its pauses", text: (row) => short(row.recomputed) },
  { key: "engine", name: "engine", meaning: "Its part of the engine's steps, from its pauses until the requests decoded again: its results, and context that was computed again", text: (row) => duration(row.engine) },
  { key: "queued", name: "queued", meaning: "How long requests waited behind its results until they ran again", text: (row) => duration(row.queued) },
  { key: "paused", name: "paused", meaning: "How long its pauses lasted, all together", text: (row) => duration(row.paused) },
];

/** A factor, as in 1.4×. */
export function factor(value: number): string {
  return Number.isFinite(value) ? `${number(value)}×` : "–";
}

/** What a tool is called, also where its name does not show. */
export function nameOf(tool: string): string {
  return tool === "" ? "(no name)" : visible(tool);
}

/** A press anywhere in a row chooses its tool, except on what does something by itself. */
function pick(event: MouseEvent, tool: string, onPick: (tool: string) => void): void {
  if (tool !== "" && !(event.target as Element).closest("a, button")) onPick(tool);
}

export function ToolTable({ rows, picked, onPick }: {
  rows: ToolRow[]; picked: string; onPick: (tool: string) => void;
}) {
  const [sort, setSort] = useState<{ key: ToolKey; ascending: boolean }>({ key: "totalCost", ascending: false });
  const by = (key: ToolKey): void =>
    setSort({ key, ascending: key === sort.key ? !sort.ascending : key === "tool" });
  const ends = rows.flatMap((row) => [quantile(row.seconds, 0.1), row.p99]).filter((seconds) => seconds > 0);
  const scale = logScale(smallest(ends), largest(ends), 3, SPREAD.width - 3);
  const head = (key: ToolKey, name: string, meaning: string) => (
    <th key={key} class={key === "tool" ? "" : "num"} title={meaning}
      aria-sort={sort.key === key ? (sort.ascending ? "ascending" : "descending") : "none"}>
      <button class="plain sort" onClick={() => by(key)}>
        {name}{sort.key === key && <span aria-hidden="true">{sort.ascending ? " ↑" : " ↓"}</span>}
      </button>
    </th>
  );
  return (
    <div class="panel tools-table">
      <table>
        <caption class="hidden-visually">Tools by their pauses and calls</caption>
        <thead><tr>
          {head("tool", "tool", "The tool's name, as the model wrote it")}
          {COLUMNS.map((column) => head(column.key, column.name, column.meaning))}
          <th class="tools-spread" title="10th to 90th percentile as a box, the median in it, the 99th as a dot; lines at powers of ten">pauses, log</th>
          <th><span class="hidden-visually">timeline</span></th>
        </tr></thead>
        <tbody>
          {ordered(rows, sort.key, sort.ascending).map((row) => (
            <tr key={row.tool} class={row.tool === "" ? "" : "pressed"} onClick={(event) => pick(event, row.tool, onPick)} aria-selected={row.tool === picked && picked !== ""} data-testid={`tool-${row.tool}`}>
              <th scope="row">
                <button class="plain name" aria-pressed={row.tool === picked && picked !== ""} disabled={row.tool === ""}
                  onClick={() => onPick(row.tool)}>{nameOf(row.tool)}</button>
                {row.person && <span class="chip">a person</span>}
              </th>
              {COLUMNS.map((column) => (
                <td key={column.key} class="num" data-testid={`${column.key}`}>{column.text(row)}</td>
              ))}
              <td class="tools-spread"><Spread ascending={row.seconds} scale={scale}
                label={`p50 ${duration(row.p50)}, p90 ${duration(row.p90)}, p99 ${duration(row.p99)}`} /></td>
              <td>{row.tool !== "" && <a href={link("timeline", [], { tool: row.tool })}
                aria-label={`${nameOf(row.tool)} in the timeline`}>timeline</a>}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
