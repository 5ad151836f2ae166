// @vitest-environment happy-dom
// Whatever models, tools and users have written is shown as text, and files only as pictures and sound.
import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { current, source } from "../src/app/state";
import { route } from "../src/app/router";
import type { Source } from "../src/sources/source";
import { kindOf } from "../src/views/session/artifact";
import { SessionView } from "../src/views/session/view";
import { ToolsView } from "../src/views/tools/view";
import { RECORDING, span, traceOf } from "./world";

const HOSTILE = `<img src=x onerror="window.pwned=1"><script>window.pwned=1</script><svg onload=alert(1)>
[click](javascript:alert(1)) http://evil.example \u202egnp.exe`;
const NAME = `"><img src=x onerror=alert(1)>`;

const json = JSON.stringify;
const TRACE = traceOf([
  span(`invoke_agent ${NAME}`, "run", 0, 9, { status: "error", message: HOSTILE }),
  span("chat m", "c1", 0, 2, { attributes: {
    "gen_ai.input.messages": json([{ role: NAME, parts: [{ type: "text", content: HOSTILE }] }]),
    "gen_ai.output.messages": json([{ role: "assistant", parts: [{ type: "text", content: HOSTILE }, { type: "tool_call", id: "1", name: NAME, arguments: HOSTILE }] }]),
  } }),
  span(`execute_tool ${NAME}`, "t1", 1, 3, { status: "error", message: HOSTILE, attributes: {
    "gen_ai.tool.name": NAME, "gen_ai.tool.call.id": "1", "gen_ai.tool.call.arguments": HOSTILE,
    "gen_ai.tool.call.result": HOSTILE, "error.type": NAME,
    "caesura.tool.artifacts": ["a.png", "a.svg", "a.wav", "a.html", "gone.png"],
  } }),
]);

const TYPES: Record<string, string> = { "a.png": "image/png", "a.svg": "image/svg+xml", "a.wav": "audio/wav", "a.html": "text/html" };
const made: Blob[] = [];

let page: HTMLElement;
beforeEach(() => {
  page = document.createElement("div");
  document.body.append(page);
  made.length = 0;
  URL.createObjectURL = (blob) => `blob:${made.push(blob as Blob)}`;
  source.value = {
    artifact: (name: string) => TYPES[name]
      ? Promise.resolve(new Blob(["<script>alert(1)</script>"], { type: TYPES[name] }))
      : Promise.reject(new Error("it is not there any more.")),
  } as unknown as Source;
  current.value = { recording: { ...RECORDING, content: true }, trace: TRACE, state: "ready", done: 0, total: 0, error: "", skew: 0 };
});
afterEach(() => {
  render(null, page);
  page.remove();
});

async function shown(view: typeof SessionView, path: string[]): Promise<HTMLElement> {
  route.value = { view: "x", path, query: {} };
  await act(() => render(<View of={view} />, page));
  await act(() => new Promise((resolve) => setTimeout(resolve, 20)));
  return page;
}
const View = ({ of: Of }: { of: typeof SessionView }) => <Of />;

describe("a hostile session", () => {
  test("is text throughout", async () => {
    const found = await shown(SessionView, ["t/run"]);
    expect(found.querySelector("script, iframe, object, embed, form")).toBeNull();
    expect([...found.querySelectorAll("*")].flatMap((one) => one.getAttributeNames()).filter((name) => name.startsWith("on"))).toEqual([]);
    const result = found.querySelector("[data-testid=result] pre")!;
    expect(result.children.length).toBe(0);
    expect(result.textContent).toBe(HOSTILE.replace("\u202e", "⟨U+202E⟩"));
    expect((globalThis as { pwned?: number }).pwned).toBeUndefined();
  });
  test("has no links but those within the page and downloads", async () => {
    const found = await shown(SessionView, ["t/run"]);
    const addresses = [...found.querySelectorAll("a")].map((link) => link.getAttribute("href") ?? "");
    expect(addresses.length).toBeGreaterThan(3);
    expect(addresses.filter((address) => !/^(#\/|blob:)/.test(address))).toEqual([]);
  });
  test("shows files as pictures, sound or downloads, and says which are gone", async () => {
    const found = await shown(SessionView, ["t/run"]);
    const files = [...found.querySelectorAll("[data-testid=artifact]")];
    expect(files.map((file) => [...file.children].map((one) => one.tagName).join())).toEqual([
      "IMG,FIGCAPTION", "IMG,FIGCAPTION", "AUDIO,FIGCAPTION", "FIGCAPTION", "FIGCAPTION",
    ]);
    expect([...found.querySelectorAll("img")].every((image) => image.getAttribute("src")?.startsWith("blob:"))).toBe(true);
    expect(files[4].textContent).toContain("it is not there any more.");
    // The page of HTML can only be downloaded, as bytes.
    expect(made.map((blob) => blob.type)).toEqual(["image/png", "image/svg+xml", "audio/wav", "application/octet-stream"]);
  });
});

test("a hostile tool's name is text in the table of tools", async () => {
  const found = await shown(ToolsView, []);
  expect(found.querySelector("img, script")).toBeNull();
  expect(found.querySelector("tbody th button")?.textContent).toBe(NAME);
});

test("types are told apart by what the browser may do with them", () => {
  expect(kindOf("image/png")).toBe("picture");
  expect(kindOf("IMAGE/JPEG; x=1")).toBe("picture");
  expect(kindOf("audio/ogg")).toBe("sound");
  for (const type of ["", "text/html", "image/x-icon", "application/pdf", "video/mp4"]) expect(kindOf(type)).toBe("file");
});
