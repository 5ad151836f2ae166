// What the memory view draws: charts along the same time axis.
import type { Layer } from "../../charts/timechart";
import type { StepColumn } from "../../model/records";
import type { Steps } from "../../model/steps";
import type { Columns } from "./columns";

export interface ChartLayer extends Omit<Layer, "values"> {
  column: StepColumn;
  meaning: string;
}

export interface Chart {
  id: string;
  title: string;
  unit: string;
  /** Whether values hold between steps or belong to a step. */
  from: "levels" | "work";
  /** Areas lie on top of each other, the first at the bottom. */
  layers: ChartLayer[];
  height: number;
  /** What the columns are multiplied by to be drawn in the unit. */
  factor?: number;
}

const area = (column: StepColumn, name: string, colour: string, pattern: Layer["pattern"], meaning: string): ChartLayer =>
  ({ column, name, colour, pattern, kind: "area", meaning });
const line = (column: StepColumn, name: string, colour: string, dash: number[] | undefined, meaning: string): ChartLayer =>
  ({ column, name, colour, dash, kind: "line", meaning });

export const CHARTS: readonly Chart[] = [
  { id: "device", title: "Device", unit: "blocks", from: "levels", height: 190, layers: [
    area("running_blocks", "running", "--owner-running", "plain", "Held by requests that run or wait."),
    area("paused_blocks", "paused", "--owner-paused", "hatched", "Held by requests that wait for a tool."),
    area("cached_blocks", "cached", "--owner-cached", "dotted", "Free, and the prefix cache can still find what is in them (an estimate)."),
    area("free_blocks", "free", "--owner-free", "plain", "Held by nobody, without those that are cached."),
  ] },
  { id: "host", title: "Host", unit: "blocks", from: "levels", height: 78, layers: [
    area("host_blocks", "on host", "--owner-host", "hatched", "Blocks in host memory, copies of what the device still holds included."),
  ] },
  { id: "seconds", title: "Step time", unit: "ms", factor: 1000, from: "work", height: 84, layers: [
    area("seconds", "took", "--ink-3", "plain", "How long a step took, which is how long each of its requests waited for a token."),
  ] },
  { id: "tokens", title: "Step", unit: "tokens", from: "work", height: 120, layers: [
    area("decode_tokens", "decode", "--state-decode", "plain", "All that a step computes of its request."),
    area("prefill_tokens", "prefill", "--state-prefill", "plain", "Prompts and tools' results, computed for the first time."),
    area("recompute_tokens", "recompute", "--state-recompute", "crossed", "Computed although they had been before."),
    line("budget_tokens", "budget", "--ink-2", [6, 4], "What a step could take: vLLM's limit, or the smaller one that the scheduler sets beside decoding. A step that reaches it was cut short. Drawn at the top where it is more than three times what was computed."),
  ] },
  { id: "link", title: "Link", unit: "blocks/step", from: "work", height: 96, layers: [
    area("loaded_blocks", "in", "--accent", "plain", "Blocks whose loading from the host a step ordered."),
    area("saved_blocks", "out", "--owner-host", "hatched", "Blocks whose copying to the host a step ordered."),
    line("budget_blocks", "budget", "--ink-2", [6, 4], "Blocks that the link carries beside a step without holding it up; drawn at the top where that is more than three times what was copied."),
  ] },
  { id: "requests", title: "Requests", unit: "", from: "levels", height: 96, layers: [
    line("running", "running", "--owner-running", undefined, "In the batch."),
    line("paused", "paused", "--owner-paused", [6, 3], "Waiting for a tool or a person."),
    line("waiting", "waiting", "--bad", [2, 2], "In the queue."),
  ] },
];

/** Budgets hold from step to step; what they allow is no work that was done. */
export const BUDGETS: ReadonlySet<StepColumn> = new Set(["budget_blocks", "budget_tokens"]);

/** Return the charts with the layers that the recording has, without those that would stay empty.
 *
 * Of `coarse` recordings a row is no single step, so they have no step time.
 */
export function chartsOf(steps: Steps, coarse = false): Chart[] {
  const swapped = SWAPPED.some((column) => most(steps, [column]) > 0);
  return CHARTS
    .filter((chart) => swapped || (chart.id !== "host" && chart.id !== "link"))
    .filter((chart) => !coarse || chart.id !== "seconds")
    .map((chart) => ({ ...chart, layers: chart.layers.filter((layer) => steps.known.has(layer.column)) }))
    .filter((chart) => chart.layers.some((layer) => !BUDGETS.has(layer.column)));
}

const SWAPPED: readonly StepColumn[] = ["host_blocks", "saved_blocks", "loaded_blocks"];

/** The largest sums that were found, by columns, and how many steps were looked at. */
const found = new WeakMap<Steps, Map<string, { length: number; sorts: number; most: number }>>();

/** Return the largest sum of some columns in any step; of a growing recording only new steps are looked at. */
export function most(steps: Steps, columns: readonly StepColumn[]): number {
  let sums = found.get(steps);
  if (!sums) found.set(steps, (sums = new Map()));
  const key = columns.join();
  let kept = sums.get(key);
  if (kept?.sorts !== steps.sorts) sums.set(key, (kept = { length: 0, sorts: steps.sorts, most: 0 }));
  for (let row = kept.length; row < steps.length; row++) {
    let sum = 0;
    for (const column of columns) sum += steps.columns[column][row];
    if (sum > kept.most) kept.most = sum;
  }
  kept.length = steps.length;
  return kept.most;
}

/** Whether free blocks are so many at all times that beside them nothing else could be seen. */
export function mostlyFree(steps: Steps): boolean {
  const all = most(steps, ["running_blocks", "paused_blocks", "free_blocks"]);
  return most(steps, ["running_blocks", "paused_blocks", "cached_blocks"]) < all / 5;
}

/** Return a chart's layers with their values in drawing order: summed areas from the top, then lines. */
export function layersOf(chart: Chart, columns: Columns): Layer[] {
  const values = columns.of;
  const layers: Layer[] = [];
  let below = new Array<number>(columns.x.length).fill(0);
  for (const { column, ...layer } of chart.layers) {
    const { factor = 1 } = chart;
    const own = (values[column] ?? []).map((value) => value * factor);
    if (layer.kind === "line") {
      layers.push({ ...layer, values: own });
      continue;
    }
    const cached = column === "free_blocks" ? values.cached_blocks : undefined;
    below = below.map((sum, row) => sum + own[row] - (cached?.[row] ?? 0));
    layers.unshift({ ...layer, values: below });
  }
  return layers;
}

const ABOVE = 3;

/** Keep a budget's line from squeezing the areas below it: a fast link could carry a thousand times as much. */
export function closeTo(layers: Layer[]): Layer[] {
  let most = 1;
  for (const layer of layers) {
    if (layer.kind === "area") for (const value of Array.from(layer.values)) most = Math.max(most, value ?? 0);
  }
  return layers.map((layer) => layer.kind === "area" ? layer
    : { ...layer, values: Array.from(layer.values, (value) => value === null ? null : Math.min(value, ABOVE * most)) });
}
