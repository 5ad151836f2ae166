// What no source and no build may contain: HTML made from text, evaluation, and addresses of other hosts.
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";

const root = join(import.meta.dirname, "..");
const files = (folder: string): string[] =>
  readdirSync(folder, { withFileTypes: true, recursive: true })
    .filter((one) => one.isFile())
    .map((one) => join(one.parentPath, one.name));

const sources = [...files(join(root, "src")), join(root, "index.html")];
const FORBIDDEN = /innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|srcdoc|\beval\(|new Function\(/;

describe("sources", () => {
  it.each(sources.map((name) => [name.slice(root.length + 1), name]))("%s makes no HTML from text", (_, name) => {
    expect(readFileSync(name, "utf8")).not.toMatch(FORBIDDEN);
  });

  it("name no other host", () => {
    const named = sources.flatMap((name) => readFileSync(name, "utf8").match(/https?:\/\/[^\s"'`)]+/g) ?? []);
    expect(named.filter((url) => !url.startsWith("http://www.w3.org/"))).toEqual([]);
  });

  it("find the largest of many by a loop: a call with as many arguments overflows the stack", () => {
    // Of three prices, and of two sides, there are never many.
    const few = ["decision/prices.tsx", "compare/multiples.tsx"];
    const spread = sources.filter((name) => /Math\.(max|min)\([^)]*\.\.\./.test(readFileSync(name, "utf8")));
    expect(spread.filter((name) => !few.some((one) => name.endsWith(one)))).toEqual([]);
  });

  it("are small and say what they are", () => {
    for (const name of sources.filter((one) => /\.tsx?$/.test(one))) {
      const lines = readFileSync(name, "utf8").split("\n");
      expect(lines[0], name).toMatch(/^\/\/ \S/);
      if (!lines[0].startsWith("// Generated")) expect(lines.length, name).toBeLessThanOrEqual(600);
    }
  });
});

describe("the build", () => {
  const built = join(root, "..", "runtime", "static");

  it.skipIf(!existsSync(built))("is three files that load nothing from elsewhere", () => {
    expect(readdirSync(built).sort()).toEqual(["index.html", "ui.css", "ui.js"]);
    expect(readFileSync(join(built, "ui.css"), "utf8")).not.toMatch(/url\(\s*["']?(https?:)?\/\//);
    expect(readFileSync(join(built, "index.html"), "utf8")).not.toMatch(/https?:/);
    expect(readFileSync(join(built, "ui.js"), "utf8")).not.toMatch(/import\s*\(/);
  });
});
