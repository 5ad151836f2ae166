// Times without steps: what no step tells of them, the lanes do.
import type { StepColumn } from "../../model/records";
import type { Steps } from "../../model/steps";
import type { Held, Holders } from "./holders";

/** Steps closer together than this follow one another without a rest, in seconds. */
export const REST = 0.005;

/** What belongs to a step and is nothing between steps. */
const WORK: ReadonlySet<StepColumn> = new Set([
  "seconds", "decode_tokens", "prefill_tokens", "recompute_tokens", "saved_blocks", "loaded_blocks",
]);

/** Return what a chart shows of a column at `time`, before which step `row` was the last to begin.
 *
 * Of free blocks that is what is not cached.
 */
export function valueAt(
  steps: Steps, holders: Holders | null, column: StepColumn, row: number, time: number,
): number {
  const held = holders && restAt(steps, holders, row, time);
  const over = time > steps.at[row] + steps.columns.seconds[row] + REST;
  const of = (name: StepColumn): number => {
    if (WORK.has(name) && over) return 0;
    return held ? restOf(steps, name, row, held) : steps.columns[name][row];
  };
  return column === "free_blocks" ? of("free_blocks") - of("cached_blocks") : of(column);
}

/** The time without steps after a step: nobody was active at its beginning. */
export interface Rest {
  from: number;
  to: number;
  /** The last change of the lanes before it. */
  change: number;
}

/** Return the rest after step `row`; null if others go on or the next step follows. */
export function restAfter(steps: Steps, holders: Holders, row: number): Rest | null {
  const from = steps.at[row] + steps.columns.seconds[row];
  const to = row + 1 < steps.length ? steps.at[row + 1] : Infinity;
  if (to - from <= REST) return null;
  const change = holders.indexAt(from + REST);
  return change >= 0 && holders.after(change).active === 0 ? { from, to, change } : null;
}

/** Return who holds what at a time of rest after step `row`; null if it is none. */
export function restAt(steps: Steps, holders: Holders, row: number, time: number): Held | null {
  const rest = restAfter(steps, holders, row);
  if (!rest || time < rest.from) return null;
  return holders.after(Math.max(rest.change, holders.indexAt(time)));
}

/** Return what a level of step `row` comes to in a rest. */
export function restOf(steps: Steps, column: StepColumn, row: number, held: Held): number {
  const of = steps.columns;
  const all = of.running_blocks[row] + of.paused_blocks[row] + of.free_blocks[row];
  const free = Math.max(0, all - held.pausedBlocks - held.otherBlocks);
  switch (column) {
    case "running": return held.active;
    case "paused": return held.paused;
    case "waiting": return held.waiting;
    case "running_blocks": return all - free - held.pausedBlocks;
    case "paused_blocks": return held.pausedBlocks;
    case "free_blocks": return free;
    case "cached_blocks": return cachedOf(of.cached_blocks[row], of.free_blocks[row], free);
    default: return of[column][row];
  }
}

/** What is freed in a rest can mostly still be found, where the prefix cache finds anything. */
function cachedOf(cached: number, before: number, free: number): number {
  return cached > 0 ? Math.min(free, cached + Math.max(0, free - before)) : 0;
}
