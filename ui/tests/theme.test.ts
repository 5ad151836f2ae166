// Colours are computed, not looked at: what is drawn stands out from what it is drawn on, in both themes.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { STATES } from "../src/model/lane";

const css = readFileSync(join(import.meta.dirname, "..", "src", "styles", "theme.css"), "utf8");
const [light, dark] = css.split(':root[data-theme="dark"]').map((part) => new Map([...part.matchAll(/--([a-z0-9-]+):\s*(#[0-9a-f]{6})/g)].map(([, name, colour]) => [name, colour])));
const THEMES: [string, Map<string, string>][] = [["light", light], ["dark", new Map([...light, ...dark])]];

/** Relative luminance as WCAG 2 defines it. */
function luminance(colour: string): number {
  const [r, g, b] = [1, 3, 5].map((i) => Number.parseInt(colour.slice(i, i + 2), 16) / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function contrast(a: string, b: string): number {
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (high + 0.05) / (low + 0.05);
}

describe.each(THEMES)("in the %s theme", (_, colours) => {
  const of = (state: string): number => contrast(colours.get(`state-${state}`)!, colours.get("panel")!);

  it.each(STATES.map((state) => [state]))("%s stands out from the panel by 3 to 1", (state) => {
    expect(of(state)).toBeGreaterThanOrEqual(3);
  });

  it("what waits stands out most", () => {
    expect(STATES.filter((state) => of(state) >= of("waiting"))).toEqual(["waiting"]);
  });
});
