// What the parts of the overview are given.
import type { Request } from "../../causes/figures";
import type { Ledger } from "../../causes/ledger";
import type { Trace } from "../../model/trace";

export interface Shown {
  trace: Trace;
  ledger: Ledger;
  /** The requests that ended in [t0, t1), by their ends. */
  ended: readonly Request[];
  t0: number;
  t1: number;
  /** The recording's time at this moment. */
  now: number;
}
