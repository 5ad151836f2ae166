// What came from outside is looked at once, here: entries are objects with a kind, all else is dropped.
import type { Entry } from "../model/records";

/** The entries among `values`. */
export function entriesOf(values: unknown): Entry[] {
  if (!Array.isArray(values)) return [];
  return values.filter((one): one is Entry => typeof one === "object" && one !== null && typeof one.kind === "string");
}

/** `entries` in slices, so that the page can draw between them. */
export function* slices<T>(entries: readonly T[], size: number): Generator<T[]> {
  for (let i = 0; i < entries.length; i += size) yield entries.slice(i, i + size);
}

/** Let the browser draw and react. */
export const breath = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 0));
