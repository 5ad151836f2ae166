// @vitest-environment happy-dom
// What is said while a recording is read, and of one of which nothing can be read.
import { render } from "preact";
import { act } from "preact/test-utils";
import { expect, test } from "vitest";
import { Shell } from "../src/app/shell";
import { current, phase, recordings, version } from "../src/app/state";
import { NothingYet } from "../src/app/states";
import { find, loaded, page } from "./mounted";
import { ENTRIES, RECORDING } from "./world";

test("figures of a part are not taken for final ones", async () => {
  recordings.value = [RECORDING];
  current.value = { ...loaded(RECORDING, ENTRIES), state: "loading", done: 38_000, total: 100_000 };
  phase.value = "ready";
  await act(() => render(<Shell />, page));
  expect(find("reading").textContent).toContain("38\u202f% of 100\u202f000 entries");
  expect(page.querySelector("[role=progressbar]")?.getAttribute("aria-valuenow")).toBe("38");
  expect(page.querySelector(".view")).toBeNull();
  expect(page.querySelector("header h1")?.textContent).toBe("Overview");
  current.value = { ...current.value, state: "ready" };
  version.value += 1;
  await act(() => render(<Shell />, page));
  expect(find("reading")).toBeNull();
  expect(page.querySelector(".view")).not.toBeNull();
});

test("a recording of which nothing can be read was not without requests", async () => {
  await act(() => render(<NothingYet live={false} broken={2} />, page));
  expect(page.textContent).toContain("None of the 2 entries of this recording can be read");
  expect(page.textContent).not.toContain("nobody sent");
  await act(() => render(<NothingYet live={false} broken={0} />, page));
  expect(page.textContent).toContain("nobody sent a request");
});
