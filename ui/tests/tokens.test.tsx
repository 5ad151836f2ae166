// @vitest-environment happy-dom
// The tokens of a session: what is read of a server's answer, the order of branches, and what is shown.
import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, expect, test, vi } from "vitest";
import { current, source } from "../src/app/state";
import { ServerSource } from "../src/sources/server";
import { ask, treesOf } from "../src/tokens/tree";
import { Tokens, Trees } from "../src/tokens/view";
import { find, loaded, page } from "./mounted";
import { ENTRIES, RECORDING } from "./world";

const sampled = (tokens: number, more = {}) => ({ source: "sampled", tokens: Array(tokens).fill(1), stop_reason: "stop", ...more });
const given = (of: string, tokens: number, more = {}) => ({ source: of, tokens: Array(tokens).fill(2), ...more });

const ANSWER = {
  object: "list",
  data: [
    {
      session: "s", parent: null, rewards: { exact: 0.5, style: -1 },
      branches: [
        { id: "s/0", session: "s", model: "m", parent: null, branch_point: 0, segments: [given("prompt", 60, { media: [{}] }), sampled(20, { stop_reason: "call", started_at: 1e9, seconds: 2, cached_tokens: 7 }), given("tool", 10), sampled(10, { resume: { pause_seconds: 3 } })] },
        { id: "s/1", session: "s", model: "m", parent: null, branch_point: 0, segments: [given("user", 5), sampled(1)] },
        { id: "s/2", session: "s", model: "m", parent: "s/0", branch_point: 80, segments: [given("template", 4), sampled(3)] },
      ],
    },
    { session: "a", parent: "s", rewards: {}, branches: [] },
  ],
};

afterEach(() => {
  source.value = null;
  vi.unstubAllGlobals();
});

test("branches stand behind the one that they leave", () => {
  const [tree, below] = treesOf(ANSWER);
  expect(tree.branches.map((one) => [one.id, one.depth, one.length, one.counts])).toEqual([
    ["s/0", 0, 100, 30], ["s/2", 1, 87, 3], ["s/1", 0, 6, 1],
  ]);
  expect(tree.branches[0].segments[1]).toEqual({ source: "sampled", tokens: 20, stop: "call", startedAt: 1e9, seconds: 2, cached: 7, paused: null, media: 0 });
  expect(tree.branches[0].segments[3].paused).toBe(3);
  expect(tree.rewards).toEqual([["exact", 0.5], ["style", -1]]);
  expect([below.parent, below.branches]).toEqual(["s", []]);
});

test("whatever the answer is, it is read", () => {
  for (const bad of [null, 3, {}, { data: 3 }, { data: [] }]) expect(treesOf(bad)).toEqual([]);
  const [tree] = treesOf({ data: [{ branches: [null, { id: 3, parent: "nobody", branch_point: "x", segments: [{ source: "poem", tokens: "abc" }, 7] }] }] });
  expect(tree.branches).toHaveLength(2);
  expect(tree.branches[1]).toMatchObject({ id: "", parent: null, point: 0, length: 0 });
  // A branch that names itself, or a later one, as its parent begins by itself.
  const [round] = treesOf({ data: [{ branches: [{ id: "a", parent: "b" }, { id: "b", parent: "b" }] }] });
  expect(round.branches.map((one) => one.depth)).toEqual([0, 0]);
});

test("a branch is a bar of its segments, and a table of what trainers take", async () => {
  await act(() => render(<Trees trees={treesOf(ANSWER)} />, page));
  const branches = [...page.querySelectorAll("[data-testid=tokens-branch]")];
  expect(branches.map((one) => one.querySelector(".facts")?.textContent)).toEqual([
    "s/0m100 tokens30 count for the loss", "s/2m87 tokens80 of them shared3 count for the loss", "s/1m6 tokens1 count for the loss",
  ]);
  const bars = [...branches[1].querySelectorAll<HTMLElement>(".tokens-bar > i")];
  expect(bars.map((one) => [one.className, one.style.width])).toEqual([
    ["tokens-shared", "80.000%"], ["tokens-template", "4.000%"], ["tokens-sampled", "3.000%"],
  ]);
  expect(branches[1].querySelector(".tokens-bar")?.getAttribute("aria-label")).toBe("shared, 80 tokens; template, 4 tokens; sampled, 3 tokens");
  const rows = [...branches[0].querySelectorAll("tbody tr")].map((row) => [...row.children].map((cell) => cell.textContent?.trim()));
  expect(rows.map((row) => row.slice(0, 4))).toEqual([
    ["prompt", "60", "0", ""], ["sampled", "20", "1", "call"], ["tool", "10", "0", ""], ["sampled", "10", "1", "stop"],
  ]);
  expect(rows[0][8]).toBe("1");
  expect(find("tokens-tree").textContent).toContain("exact 0.5");
});

async function shown(about: object, answer: unknown, status = 200): Promise<ReturnType<typeof vi.fn>> {
  const asked = vi.fn(async () => new Response(JSON.stringify(answer), { status }));
  vi.stubGlobal("fetch", asked);
  current.value = loaded({ ...RECORDING, about: { ...RECORDING.about, ...about } }, ENTRIES);
  source.value = new ServerSource("http://here");
  await act(() => render(<Tokens session="resp_1/x" />, page));
  return asked;
}

test("a server that keeps none is asked for none", async () => {
  const asked = await shown({}, ANSWER);
  expect(page.textContent).toBe("");
  expect(asked).not.toHaveBeenCalled();
});

test("the server is asked when somebody wants to see the tokens", async () => {
  const asked = await shown({ trajectories: true }, ANSWER);
  expect(asked).not.toHaveBeenCalled();
  await act(async () => page.querySelector("button")?.click());
  await vi.waitFor(() => expect(page.querySelectorAll("[data-testid=tokens-tree]")).toHaveLength(2));
  expect(asked).toHaveBeenCalledWith("http://here/v1/sessions/resp_1%2Fx/trajectories", { headers: {} });
  expect(page.textContent).toContain("below s");
});

test("why there are none is told", async () => {
  const error = { error: { message: "The session 's' has no whole trajectory: it was deleted\u202e." } };
  await shown({ trajectories: true }, error, 409);
  await act(async () => page.querySelector("button")?.click());
  await vi.waitFor(() => expect(page.querySelector("[role=alert]")?.textContent).toContain("it was deleted⟨U+202E⟩"));
  vi.stubGlobal("fetch", async () => new Response("{}", { status: 500 }));
  expect(await ask("", "s", "key")).toEqual({ trees: [], why: "The server answered 500." });
  vi.stubGlobal("fetch", () => Promise.reject(new Error("no")));
  expect((await ask("", "s", "")).why).toBe("The server does not answer.");
});
