// In what two recordings differ, as far as they say it themselves.
import type { Recording } from "../../model/records";

export interface Difference {
  name: string;
  a: string;
  b: string;
}

/** What makes figures incomparable: anything but the policies that are to be compared. */
const SAME = [
  "workload", "seed", "rate", "replay_of", "stretch", "machine", "engines", "model", "total_blocks", "block_size",
];

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

/** A real machine's times beside a simulated one's say nothing of policies, whatever else is alike. */
export const unlikeSources = (a: Recording, b: Recording): boolean => isReal(a) !== isReal(b);

const isReal = (one: Recording): boolean => one.source !== "simulate" && one.source !== "what-if";

/** Whether figures of two recordings say which policy is better, as far as they tell of themselves. */
export function comparable(a: Recording, b: Recording): boolean {
  return !unlikeSources(a, b) && unequal(differences(a, b)).length === 0;
}

function said(recording: Recording, name: string): string {
  const value = recording.about[name];
  return value === undefined || value === null ? "–" : String(value);
}
