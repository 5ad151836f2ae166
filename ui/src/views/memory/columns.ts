// Which rows of the steps are drawn in a window, as columns for charts.
import { firstFrom, peaks } from "../../charts/downsample";
import type { StepColumn } from "../../model/records";
import type { Steps } from "../../model/steps";
import type { TimeMap } from "../../model/timemap";
import type { Held, Holders } from "./holders";
import { REST, restAfter, restAt, restOf } from "./rests";

/** Some columns of the steps at ascending positions `x` of the drawn axis. */
export interface Columns<Name extends StepColumn> {
  x: number[];
  of: Record<Name, number[]>;
}

/** What there is at a moment; each value holds until the next step. */
export const LEVELS = [
  "running_blocks", "paused_blocks", "cached_blocks", "free_blocks", "host_blocks",
  "running", "paused", "waiting",
] as const satisfies StepColumn[];
/** What a step does; there is none of it between steps. */
export const WORK = [
  "decode_tokens", "prefill_tokens", "recompute_tokens", "saved_blocks", "loaded_blocks", "budget_blocks",
] as const satisfies StepColumn[];

/** The steps that are seen in [from, to]: the one before holds into it, the one behind ends it. */
export function seen(steps: Steps, from: number, to: number): [first: number, last: number] {
  const first = Math.max(0, firstFrom(steps.at, steps.length, from) - 1);
  return [first, Math.min(steps.length, firstFrom(steps.at, steps.length, to) + 1)];
}

/** Return the levels in [from, to]: at most a few rows for each of `buckets`, with all peaks.
 *
 * A step tells of the moment in which it begins. After one that nobody goes on from there is none to
 * tell that its requests have paused or ended: there the lanes do, if `holders` has them.
 */
export function levelsOf(
  steps: Steps, holders: Holders | null, map: TimeMap, from: number, to: number, buckets: number,
): Columns<(typeof LEVELS)[number]> {
  const found: Columns<(typeof LEVELS)[number]> = { x: [], of: filled(LEVELS, () => []) };
  const put = (row: number, time: number, held: Held | null): void => {
    found.x.push(map.draw(time));
    for (const name of LEVELS) {
      found.of[name].push(held ? restOf(steps, name, row, held) : steps.columns[name][row]);
    }
  };
  const rows = rowsOf(steps, map, LEVELS, from, to, buckets);
  for (const row of rows) {
    put(row, steps.at[row], null);
    const rest = holders && restAfter(steps, holders, row);
    if (!holders || !rest) continue;
    put(row, rest.from, holders.after(rest.change));
    for (let change = rest.change + 1; holders.at[change] < rest.to; change++) {
      put(row, holders.at[change], holders.after(change));
    }
  }
  const end = rows.at(-1);
  if (end === steps.length - 1 && steps.at[end] < to) {
    put(end, to, holders && restAt(steps, holders, end, to));
  }
  return found;
}

/** Return the work in [from, to], as `levelsOf`, and zero from the end of a step to the next.
 *
 * A step is drawn half a bucket wide at least, or a short one would not be seen.
 */
export function workOf(
  steps: Steps, map: TimeMap, from: number, to: number, buckets: number,
): Columns<(typeof WORK)[number]> {
  const least = (map.draw(to) - map.draw(from)) / buckets / 2;
  const x: number[] = [];
  /** Which row each position shows, and -1 - row where it has come to rest. */
  const shown: number[] = [];
  for (const row of rowsOf(steps, map, WORK, from, to, buckets)) {
    const start = map.draw(steps.at[row]);
    x.push(start);
    shown.push(row);
    const rest = steps.at[row] + steps.columns.seconds[row];
    const end = Math.max(map.draw(rest), start + least);
    const next = row + 1 < steps.length ? steps.at[row + 1] : Infinity;
    if (rest + REST > next || end >= map.draw(next)) continue;
    x.push(end);
    shown.push(-1 - row);
  }
  return { x, of: filled(WORK, (name) => {
    const column = steps.columns[name];
    // What the link could carry is no work: it holds.
    if (name === "budget_blocks") return shown.map((row) => column[row < 0 ? -1 - row : row]);
    return shown.map((row) => (row < 0 ? 0 : column[row]));
  }) };
}

function filled<Name extends StepColumn>(
  names: readonly Name[], values: (name: Name) => number[],
): Record<Name, number[]> {
  return Object.fromEntries(names.map((name) => [name, values(name)])) as Record<Name, number[]>;
}

function rowsOf(
  steps: Steps, map: TimeMap, names: readonly StepColumn[], from: number, to: number, buckets: number,
): number[] {
  const [first, last] = seen(steps, from, to);
  const columns = names.filter((name) => steps.known.has(name)).map((name) => steps.columns[name]);
  const start = map.draw(from);
  const width = (map.draw(to) - start) / buckets;
  const begins = Float64Array.from({ length: buckets }, (_, bucket) => map.time(start + bucket * width));
  return peaks(first, last, steps.at, begins, columns);
}
