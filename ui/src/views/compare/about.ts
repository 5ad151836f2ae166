// In what two recordings differ, as far as they say it themselves.
import type { Recording } from "../../model/records";

export interface Difference {
  name: string;
  a: string;
  b: string;
}

/** What makes figures incomparable: anything but the policies that are to be compared. */
const SAME = ["workload", "seed", "rate", "machine", "model", "total_blocks", "block_size"];

/** Return what the recordings say differently about themselves, by name. */
export function differences(a: Recording, b: Recording): Difference[] {
  const names = [...new Set([...Object.keys(a.about), ...Object.keys(b.about)])];
  return names
    .map((name) => ({ name, a: said(a, name), b: said(b, name) }))
    .filter((one) => one.a !== one.b);
}

/** Return the names among the differences that are no choice of policy. */
export function unequal(found: readonly Difference[]): string[] {
  return found.map((one) => one.name).filter((name) => SAME.includes(name));
}

function said(recording: Recording, name: string): string {
  const value = recording.about[name];
  return value === undefined || value === null ? "–" : String(value);
}
