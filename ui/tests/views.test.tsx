// @vitest-environment happy-dom
// What the views let a reader do: sort, search, choose, and see what is not known.
import { type ComponentType, render } from "preact";
import { act } from "preact/test-utils";
import { expect, test } from "vitest";
import { current, other, recordings, version } from "../src/app/state";
import { parse, route } from "../src/app/router";
import type { Entry, PauseEntry, Recording } from "../src/model/records";
import { labelOf } from "../src/app/recordings/words";
import { CompareView } from "../src/views/compare/view";
import { PauseList } from "../src/views/decision/list";
import { PauseCard } from "../src/views/decision/pausecard";
import { PredictionsView } from "../src/views/predictions/view";
import { SessionView } from "../src/views/session/view";
import { ToolsView } from "../src/views/tools/view";
import { find, loaded, page } from "./mounted";
import { sample } from "./sample";
import { ENTRIES, RECORDING, lanes, span, traceOf } from "./world";

async function shown(View: ComponentType, hash: string, entries: Entry[] = ENTRIES): Promise<HTMLElement> {
  current.value = loaded(RECORDING, entries);
  route.value = parse(hash);
  version.value += 1;
  await act(() => render(<View />, page));
  return page;
}

const all = (selector: string): string[] => [...page.querySelectorAll(selector)].map((one) => one.textContent ?? "");
const click = (element: Element | null | undefined): Promise<void> => act(() => (element as HTMLElement).click());

const MORE: Entry[] = [
  ...ENTRIES,
  { kind: "pause", request: "two", session: "two", tool: "add", at: 7, outcome: "resumed", handling: "preserve",
    pause_seconds: 1, predicted_seconds: 1, cost: 3, queue_cost: 1, work_cost: 0, regret: 0, wanted_seconds: 1 },
];

test("tools are sorted by what is clicked, and chosen in the address", async () => {
  await shown(ToolsView, "#/tools", MORE);
  expect(all("tbody th button")).toEqual(["search", "add"]);
  const head = [...page.querySelectorAll("thead th")].find((one) => one.textContent?.startsWith("tool"))!;
  await click(head.querySelector("button"));
  expect(all("tbody th button")).toEqual(["add", "search"]);
  expect(head.getAttribute("aria-sort")).toBe("ascending");
  await click(head.querySelector("button"));
  expect(head.getAttribute("aria-sort")).toBe("descending");
  await click(page.querySelector("tbody th button"));
  expect(route.value.query.tool).toBe("search");
  expect(find("tools-title").textContent).toContain("search");
  expect(find("tool-search").querySelector("a")?.getAttribute("href")).toMatch(/^#\/timeline\?.*tool=search/);
});

test("a recording without tools says so", async () => {
  await shown(ToolsView, "#/tools", [lanes(["r", "decode", 0])]);
  expect(page.textContent).toContain("No tool was called");
});

test("sessions are searched and sorted", async () => {
  await shown(SessionView, "#/session", MORE);
  const rows = () => all("[data-testid=session-row] th a");
  expect(rows()).toEqual(["one", "two"]);
  // Where no texts are recorded the tools tell sessions apart better than ids do.
  expect(all(".session-tools")).toEqual(["search", "add"]);
  const regret = [...page.querySelectorAll("thead button")].find((one) => one.textContent?.startsWith("duration"));
  await click(regret);
  await click(regret);
  expect(rows()).toEqual(["two", "one"]);
  const search = find("session-search") as HTMLInputElement;
  await act(() => {
    search.value = "SEARCH";
    search.dispatchEvent(new Event("input", { bubbles: true }));
  });
  expect(rows()).toEqual(["one"]);
});

test("a session without spans is told by its requests, with the way to the decision", async () => {
  await shown(SessionView, "#/session/one");
  expect(find("request").textContent).toContain("context 0 → 120 tokens");
  expect(find("pause-chip").getAttribute("href")).toBe("#/decision/one/3");
  expect(find("pause-chip").textContent).toMatch(/search.*5\.00 s.*KV discarded.*regret 20 blk·s/);
});

test("where content was not captured the page says how to have it", async () => {
  await shown(SessionView, "#/session/t%2Frun", [span("invoke_agent a", "run", 0, 3), span("chat m", "c", 0, 1)]);
  expect(find("no-content").textContent).toContain("--trace-content");
});

test("a session that is not there is told", async () => {
  await shown(SessionView, "#/session/nobody");
  expect(page.textContent).toContain("no session, run or request called nobody");
});

test("two recordings are compared, and what is not known says why", async () => {
  const coarse = { ...RECORDING, id: "b", title: "B", about: { handling: "none", lanes: "coarse" } };
  recordings.value = [RECORDING, coarse];
  other.value = loaded(coarse, [
    lanes(["one", "waiting", 0], ["one", "decode", 1], ["one", "ended", 4], ["two", "waiting", 4], ["two", "decode", 5], ["two", "ended", 20]),
  ]);
  await shown(CompareView, "#/compare?rec=a&with=b");
  const cells = (id: string) => [...find(`metric-${id}`).querySelectorAll("td")].map((one) => one.textContent);
  expect(cells("latency_mean")).toEqual(["8.50 s", "10.0 s", "+1.50 s", "1.18×", "A is better"]);
  expect(cells("regret")).toEqual(["20 blk·s", "not known: coarse lanes", "", "", ""]);
  expect(cells("sessions")).toEqual(["2", "2", "0", "1×", ""]);
  expect(find("matched").textContent).toContain("In B 1 were faster and 1 slower");
  // `two` took 8 s longer, `one` 5 s less.
  expect(all("[data-testid=pair] th")).toEqual(["two", "one"]);
  expect(page.querySelectorAll("[data-testid=pair] td:last-child a").length).toBe(4);
});

test("a decision names the request that needed the blocks, with a way to it", async () => {
  const [pause] = traceOf(ENTRIES).pauses;
  await shown(() => <PauseCard pause={pause} />, "#/decision/one/3");
  const row = [...page.querySelectorAll("tr")].find((one) => one.textContent?.includes("released"))!;
  expect(row.textContent).toContain("a waiting request needed blocks to start: two");
  expect(row.querySelector("a")?.getAttribute("href")).toMatch(/timeline.*sel=two.*t0=3&t1=7/);
});

test("what was done late is not held against the same deed at once", async () => {
  const [pause] = traceOf(ENTRIES).pauses;
  await shown(() => <PauseCard pause={pause} />, "#/decision/one/3");
  expect(page.querySelector(".dc-verdict")?.textContent).toContain("It cost 50 blk·s; discarding it at once would have cost 30");
});

/** The same recording, with another end of its pause. */
const ending = (end: Partial<PauseEntry>): Entry[] =>
  ENTRIES.map((entry) => (entry.kind === "pause" ? { ...entry, ...end } as Entry : entry));
const FREE = { decisions: [], handling: "preserve", cost: 0, queue_cost: 0, work_cost: 0, hindsight: null, regret: null, wanted_seconds: 0, wanted_requests: 0, wanted_by: [] };
const OLDER = { queue_cost: undefined, work_cost: undefined };

async function verdictOf(end: Partial<PauseEntry>): Promise<Element> {
  const [pause] = traceOf(ending(end)).pauses;
  return (await shown(() => <PauseCard pause={pause} />, "#/decision/one/3", ending(end))).querySelector(".dc-verdict")!;
}

test("where memory was free there is no regret, and the page says so", async () => {
  const verdict = await verdictOf(FREE);
  expect(verdict.textContent).toBe("Memory was free throughout: keeping the KV cost nothing.");
  expect(verdict.querySelector(".bad")).toBeNull();
});

test("a regret names who wanted the memory, and for how long", async () => {
  const verdict = await verdictOf({});
  expect(verdict.querySelector(".bad")?.textContent).toBe("Regret 20 blk·s.");
  expect(verdict.textContent).toContain("Others wanted its memory for 2.50 s of 6.00 s. 1 request waited for blocks meanwhile: two for 2.00 s.");
  expect(verdict.querySelector("a")?.getAttribute("href")).toMatch(/timeline.*sel=two/);
});

test("what was given up for nobody is regretted, and so it is said", async () => {
  const verdict = await verdictOf({ ...FREE, handling: "discard", cost: 30, regret: 30, hindsight: { preserve: 0, discard: 30, swap: null } });
  expect(verdict.textContent).toContain("It cost 30 blk·s; keeping all of it would have cost 0 blk·s.");
  expect(verdict.textContent).toContain("Memory was free throughout, so giving it up was needless.");
});

test("a regret of an earlier version, which took all memory as wanted, is not shown", async () => {
  const verdict = await verdictOf(OLDER);
  expect(verdict.textContent).toContain("An earlier version recorded it");
  expect(page.textContent).not.toContain("Regret 20");
  expect(page.querySelectorAll(".dc-bar .dc-hollow").length).toBe(0);
});

test("decisions are listed by regret, with who wanted the memory; those without come last", async () => {
  const kinds: [string, Partial<PauseEntry>][] = [["free", FREE], ["old", OLDER], ["dear", { regret: 9 }], ["cheap", { regret: 1 }]];
  const template = ENTRIES.find((entry) => entry.kind === "pause")!;
  const list = kinds.map(([request, end], i) => ({ ...template, ...end, request, session: request, at: 3 + i }) as Entry);
  const column = (index: number): string[] => all(`.dc-all tbody td:nth-child(${index})`);
  await shown(PauseList, "#/decision", list);
  expect(column(1)).toEqual(["dear", "cheap", "free", "old"]);
  expect(column(7)).toEqual(["two", "two", "nobody", "–"]);
  expect(column(9)).toEqual(["9", "1", "–", "–"]);
  expect(page.textContent).toContain("regret 10 blk·s in all");
  await shown(PauseList, "#/decision?dc.sort=regret", list);
  expect(column(1)).toEqual(["cheap", "dear", "free", "old"]);
  expect(page.querySelector("th[aria-sort=ascending]")?.textContent).toContain("regret");
  await shown(PauseList, "#/decision?dc.sort=valueOf", list); // what every object has is no column
  expect(column(1)).toEqual(["dear", "cheap", "free", "old"]);
  await shown(PauseList, "#/decision", list.slice(0, 1));
  expect(page.textContent).toContain("nobody wanted their memory");
});

test("why something else was done than what was cheapest at first is said", async () => {
  await verdictOf({ handling: "preserve", decisions: [] });
  expect(page.querySelector(".dc-prices")?.textContent).toContain("The policy caesura does not take the least price at the beginning");
  await verdictOf({ handling: "discard" });
  expect(page.querySelector(".dc-prices")?.textContent).not.toContain("does not take the least price");
});

test("of a pause that a new request followed it is not said how it came back", async () => {
  const followed = ENTRIES.map((entry) => (entry.kind === "pause" ? { ...entry, outcome: "followed", handling: "none", recomputed_tokens: 0 } as Entry : entry));
  const [pause] = traceOf(followed).pauses;
  await shown(() => <PauseCard pause={pause} />, "#/decision/one/3", followed);
  expect(page.textContent).toContain("left to the follow-up");
  expect(page.textContent).not.toContain("Tokens still there");
  await shown(SessionView, "#/session/one", followed);
  expect(find("pause-chip").textContent).toContain("followed by a new request");
});

test("of a scheduler that knows no pauses it is not said that there were none", async () => {
  const coarse = { ...RECORDING, about: { lanes: "coarse" } };
  for (const View of [ToolsView, PauseList]) {
    await shown(View, "#/tools", [lanes(["one", "decode", 1], ["one", "dropped", 2])]);
    expect(page.textContent).toMatch(/No tool was called|No request of this recording has paused/);
    await act(() => {
      current.value = loaded(coarse, [lanes(["one", "decode", 1], ["one", "dropped", 2])]);
    });
    expect(page.textContent).toContain("its requests end at a call and begin anew");
    expect(page.textContent).not.toMatch(/No tool was called|has paused|0 pauses/);
  }
});

test("recordings of one name are told apart by their time", () => {
  const at = (id: string, title: string, started: number): Recording => ({ ...RECORDING, id, title, started });
  const list = [at("a", "serve", 1.7e9), at("b", "serve", 1.7e9 + 3600), at("c", "other", 1.7e9)];
  const labels = list.map((one) => labelOf(one, list));
  expect(new Set(labels).size).toBe(3);
  expect(labels[0]).toMatch(/^serve, 1\d Nov, \d\d:\d\d:\d\d$/);
  expect(labels[2]).toBe("other");
});

test("of recordings with other sessions none is called the better one", async () => {
  const strange = { ...RECORDING, id: "b", title: "B" };
  recordings.value = [RECORDING, strange];
  other.value = loaded(strange, [lanes(["three", "waiting", 0], ["three", "decode", 1], ["three", "ended", 4])]);
  await shown(CompareView, "#/compare?rec=a&with=b");
  expect(find("unlike").textContent).toContain("do not say which is better");
  expect(all("[data-testid=better]").join("")).toBe("");
  expect(page.querySelector(".best")).toBeNull();
});

test("one recording alone cannot be compared", async () => {
  recordings.value = [RECORDING];
  await shown(CompareView, "#/compare");
  expect(page.textContent).toContain("only one recording");
});

test("predictions are compared by predictor, quantity by quantity", async () => {
  await shown(PredictionsView, "#/predictions", sample({ sessions: 30, content: false }));
  expect(all(".predictions-table tbody th").slice(0, 2)).toEqual(["hazard", "history"]);
  expect(find("accuracy-calls_left-hazard").getAttribute("aria-selected")).toBe("true");
  const cells = (id: string): string[] => [...find(id).querySelectorAll("td")].map((cell) => cell.textContent ?? "");
  // A model that saw the truth with an error orders better than one that says the same of all.
  expect(Number(cells("accuracy-calls_left-hazard")[5])).toBeGreaterThan(0.8);
  expect(cells("accuracy-calls_left-history")[5]).toBe("0.5");
  await click([...page.querySelectorAll(".predictions-table button")].find((one) => one.textContent === "Tokens"));
  expect(route.value.query.quantity).toBe("decode_tokens");
});

test("each call of a session is told with what was predicted and what came", async () => {
  const entries = sample({ sessions: 30, content: false });
  const ended = entries.filter((one) => one.kind === "session").find((one) => (one.calls ?? 0) > 2)!;
  await shown(PredictionsView, `#/predictions/${ended.request}`, entries);
  const rows = [...page.querySelectorAll("[data-testid=forecast-row]")].map((row) => [row.firstElementChild?.textContent, row.lastElementChild?.textContent]);
  const calls = ended.calls ?? 0;
  expect(rows).toEqual(Array.from({ length: calls + 1 }, (_, made) => [String(made), String(calls - made)]));
  await shown(PredictionsView, "#/predictions/nobody", entries);
  expect(page.textContent).toContain("no forecasts of a session called nobody");
});

test("a recording without forecasts says so", async () => {
  await shown(PredictionsView, "#/predictions");
  expect(page.textContent).toContain("Nothing was predicted");
});
