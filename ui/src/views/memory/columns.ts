// Which rows of the steps are drawn in a window, as columns for charts.
import { firstFrom, peaks } from "../../charts/downsample";
import type { StepColumn } from "../../model/records";
import type { Steps } from "../../model/steps";
import type { TimeMap } from "../../model/timemap";
import { BUDGETS } from "./charts";
import type { Held, Holders } from "./holders";
import { REST, restAfter, restAt, restOf } from "./rests";

/** Some columns of the steps at ascending positions `x` of the drawn axis. */
export interface Columns {
  x: number[];
  of: Partial<Record<StepColumn, number[]>>;
}

/** Part of the drawn axis, and in how many buckets it is drawn. */
export interface Part {
  map: TimeMap;
  from: number;
  to: number;
  buckets: number;
}

/** The steps that are seen in [from, to]: the one before holds into it, the one behind ends it. */
export function seen(steps: Steps, from: number, to: number): [first: number, last: number] {
  const first = Math.max(0, firstFrom(steps.at, steps.length, from) - 1);
  return [first, Math.min(steps.length, firstFrom(steps.at, steps.length, to) + 1)];
}

/** Return levels, which are there at a moment, in a part: a few rows a bucket, with all peaks.
 *
 * A step tells of the moment in which it begins. After one that nobody goes on from there is none to
 * tell that its requests have paused or ended: there the lanes do, if `holders` has them.
 */
export function levelsOf(
  steps: Steps, holders: Holders | null, names: readonly StepColumn[], part: Part,
): Columns {
  const x: number[] = [];
  const columns = names.map((): number[] => []);
  const put = (row: number, time: number, held: Held | null): void => {
    x.push(part.map.draw(time));
    names.forEach((name, place) => columns[place].push(held ? restOf(steps, name, row, held) : steps.columns[name][row]));
  };
  const rows = rowsOf(steps, names, part);
  for (const row of rows) {
    put(row, steps.at[row], null);
    const rest = holders && restAfter(steps, holders, row);
    if (!holders || !rest) continue;
    put(row, rest.from, holders.after(rest.change));
    for (let change = rest.change + 1; change < holders.length && holders.at[change] < rest.to; change++) {
      put(row, holders.at[change], holders.after(change));
    }
  }
  const end = rows.at(-1);
  if (end === steps.length - 1 && steps.at[end] < part.to) {
    put(end, part.to, holders && restAt(steps, holders, end, part.to));
  }
  return { x, of: Object.fromEntries(names.map((name, place) => [name, columns[place]])) };
}

/** Return work, which belongs to steps, in a part: as `levelsOf`, and zero between steps.
 *
 * A step is drawn half a bucket wide at least, or a short one would not be seen.
 */
export function workOf(steps: Steps, names: readonly StepColumn[], part: Part): Columns {
  const { map } = part;
  const least = (map.draw(part.to) - map.draw(part.from)) / part.buckets / 2;
  const x: number[] = [];
  /** Which row each position shows, and -1 - row where it has come to rest. */
  const shown: number[] = [];
  for (const row of rowsOf(steps, names, part)) {
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
  const values = (name: StepColumn): number[] => {
    const column = steps.columns[name];
    if (BUDGETS.has(name)) return shown.map((row) => column[row < 0 ? -1 - row : row]);
    return shown.map((row) => (row < 0 ? 0 : column[row]));
  };
  return { x, of: Object.fromEntries(names.map((name) => [name, values(name)])) };
}

/** Cached blocks are free ones: their peaks need no rows of their own. */
function rowsOf(steps: Steps, names: readonly StepColumn[], { map, from, to, buckets }: Part): number[] {
  const [first, last] = seen(steps, from, to);
  const columns = names.filter((name) => name !== "cached_blocks").map((name) => steps.columns[name]);
  const start = map.draw(from);
  const width = (map.draw(to) - start) / buckets;
  const begins = Float64Array.from({ length: buckets }, (_, bucket) => map.time(start + bucket * width));
  return peaks(first, last, steps.at, begins, columns);
}
