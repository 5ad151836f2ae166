// The engine's steps in typed columns, in time order.
import { above, grown } from "./columns";
import { STEP_COLUMNS, type StepColumn, type StepsEntry } from "./records";

export class Steps {
  length = 0;
  /** How often the steps were put in another order. */
  sorts = 0;
  private ordered = true;
  readonly columns: Record<StepColumn, Float64Array>;
  /** Columns that any entry has had; the others hold zeros. */
  readonly known = new Set<StepColumn>();

  constructor() {
    this.columns = Object.fromEntries(
      STEP_COLUMNS.map((name) => [name, new Float64Array(64)]),
    ) as Record<StepColumn, Float64Array>;
  }

  /** When each step began, in seconds. */
  get at(): Float64Array {
    return this.columns.at;
  }

  /** One column; only the first `length` items count. */
  get(name: StepColumn): Float64Array {
    return this.columns[name];
  }

  /** The step that had begun at `time`; -1 before the first. */
  indexAt(time: number): number {
    return above(this.columns.at, this.length, time) - 1;
  }

  add(entry: StepsEntry): void {
    const count = entry.at?.length ?? 0;
    const before = this.length;
    for (const name of STEP_COLUMNS) {
      const column = grown(this.columns[name], before + count);
      this.columns[name] = column;
      const values = entry[name];
      if (!values?.length) continue;
      this.known.add(name);
      for (let i = 0; i < count; i++) column[before + i] = values[i] ?? 0;
    }
    this.length += count;
    for (let i = Math.max(before, 1); i < this.length; i++) if (this.at[i] < this.at[i - 1]) this.ordered = false;
  }

  /** Put the steps in time order, after several engines' batches have come in any. */
  settle(): void {
    if (this.ordered) return;
    this.ordered = true;
    this.sorts += 1;
    const order = Array.from({ length: this.length }, (_, i) => i);
    const at = this.at;
    order.sort((a, b) => at[a] - at[b]);
    for (const name of STEP_COLUMNS) {
      const old = this.columns[name];
      const sorted = new Float64Array(old.length);
      for (let i = 0; i < this.length; i++) sorted[i] = old[order[i]];
      this.columns[name] = sorted;
    }
  }
}
