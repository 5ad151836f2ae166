// @vitest-environment happy-dom
// A view that breaks says so, can be tried again, and takes nothing else with it.
import { signal } from "@preact/signals";
import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Boundary, broke } from "../src/app/boundary";

let page: HTMLElement;
const wrong = signal(false);
beforeEach(() => {
  page = document.createElement("div");
  document.body.append(page);
  wrong.value = false;
});
afterEach(() => {
  render(null, page);
  page.remove();
});

function Fragile() {
  if (wrong.value) throw new TypeError("no such lane");
  return <p>all is well</p>;
}

const shown = (name: string): Promise<void> => act(() => render(<Boundary key={name} name={name}><Fragile /></Boundary>, page));
const button = (text: string): HTMLButtonElement => [...page.querySelectorAll("button")].find((one) => one.textContent === text)!;

test("what breaks is told with its details, and drawn again when it is asked for", async () => {
  await shown("Sessions");
  expect(page.textContent).toBe("all is well");
  await act(() => void (wrong.value = true));
  expect(page.querySelector("[role=alert]")?.textContent).toContain("Sessions cannot be drawn");
  expect(page.querySelector("pre")?.textContent).toContain("TypeError: no such lane");
  wrong.value = false;
  await act(() => button("Try again").click());
  expect(page.textContent).toBe("all is well");
});

test("the details can be copied", async () => {
  const written = vi.fn(async (_: string) => undefined);
  Object.defineProperty(navigator, "clipboard", { value: { writeText: written }, configurable: true });
  wrong.value = true;
  await shown("Tools");
  await act(async () => button("Copy details").click());
  expect(written.mock.calls[0][0]).toMatch(/view: Tools[\s\S]*no such lane/);
  await vi.waitFor(() => expect(page.querySelector("[role=status]")?.textContent).toBe("Copied."));
});

test("what breaks on a canvas is told too, and another view begins whole", async () => {
  await shown("Timeline");
  await act(() => broke(new Error("the canvas is lost")));
  expect(page.textContent).toContain("Timeline cannot be drawn");
  expect(page.textContent).toContain("the canvas is lost");
  await shown("Memory");
  expect(page.textContent).toBe("all is well");
});
