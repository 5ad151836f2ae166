// An element of the page that views are rendered into: empty before each test of the file that imports this.
import { render } from "preact";
import { afterEach, beforeEach } from "vitest";
import { type Loaded, current, other } from "../src/app/state";
import type { Entry, Recording } from "../src/model/records";
import { traceOf } from "./world";

export let page: HTMLElement;

beforeEach(() => {
  page = document.createElement("div");
  document.body.append(page);
});
afterEach(() => {
  render(null, page);
  page.remove();
  current.value = other.value = null;
});

/** What is rendered with this `data-testid`. */
export const find = (id: string): HTMLElement => page.querySelector(`[data-testid="${id}"]`)!;

/** A recording that has been read whole. */
export const loaded = (recording: Recording, entries: Entry[]): Loaded =>
  ({ recording, trace: traceOf(entries), state: "ready", done: 0, total: 0, error: "", skew: 0 });
