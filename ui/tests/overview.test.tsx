// @vitest-environment happy-dom
// The overview: figures of a window, their edges, what is over time, and what a reader can do.
import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { parse, route } from "../src/app/router";
import { current, setWindow, timeWindow, version } from "../src/app/state";
import { Ledger } from "../src/causes/ledger";
import type { Entry, HttpEntry } from "../src/model/records";
import { TimeMap } from "../src/model/timemap";
import { answers, binAt, binsOf, endings, latencies, throughput } from "../src/views/overview/series";
import { answersIn, firstOutputs, percentilesOf, tokensIn } from "../src/views/overview/summary";
import { OverviewView } from "../src/views/overview/view";
import { ENTRIES, RECORDING, lanes, span, traceOf } from "./world";

const http = (at: number, status: number, more: Partial<HttpEntry> = {}): HttpEntry =>
  ({ kind: "http", at, route: "/v1/chat/completions", status, ...more });

describe("figures of a window", () => {
  it("count a step that reaches over an edge with its part within", () => {
    const { steps } = traceOf([{ kind: "steps", at: [0, 2, 4], seconds: [2, 2, 2], decode_tokens: [10, 20, 40], prefill_tokens: [0, 8, 0] }]);
    expect(tokensIn(steps, 0, 6)).toEqual({ decoded: 70, prefilled: 8, recomputed: 0, busy: 6 });
    expect(tokensIn(steps, 1, 3)).toEqual({ decoded: 15, prefilled: 4, recomputed: 0, busy: 2 });
    expect(tokensIn(steps, 6, 9).decoded).toBe(0);
  });

  it("count time once where steps lie over one another", () => {
    const { steps } = traceOf([{ kind: "steps", at: [0, 1], seconds: [2, 2], decode_tokens: [4, 4] }]);
    expect(tokensIn(steps, 0, 9)).toMatchObject({ decoded: 8, busy: 3 });
  });

  it("are percentiles, of those that have the figure", () => {
    const values = Array.from({ length: 101 }, (_, i) => i);
    expect(percentilesOf([...values, null])).toEqual({ count: 101, p50: 50, p95: 95, p99: 99 });
    expect(percentilesOf([]).p50).toBeNaN();
  });

  it("tell what clients got first apart from the engine's first token", () => {
    const first = { attributes: { "gen_ai.response.time_to_first_chunk": 2 } };
    const { runs } = traceOf([
      span("invoke_agent a", "run", 10, 20), span("chat m", "c1", 11, 13, {}), span("chat m", "c2", 14, 18, first),
    ]);
    expect(firstOutputs(runs, 0, 21)).toEqual([6]);
    expect([firstOutputs(runs, 0, 20), firstOutputs(runs, 20, 21)]).toEqual([[], [6]]);
  });

  it("count requests to the server by how they ended, with what several stand for", () => {
    const entries = [http(1, 200), http(2, 429, { count: 40, code: "too_many_requests" }), http(2.5, 404), http(3, 499), http(4, 503), http(5, 200)];
    expect(answersIn(entries, 1, 5)).toEqual({
      counts: { answered: 1, refused: 41, failed: 1, left: 1 },
      reasons: [
        { status: 429, code: "too_many_requests", count: 40 }, { status: 404, code: "", count: 1 },
        { status: 499, code: "", count: 1 }, { status: 503, code: "", count: 1 },
      ],
    });
  });
});

describe("figures over time", () => {
  const bins = binsOf(new TimeMap(), 0, 20, 10);

  it("put each request where it ended, and no window's edge twice", () => {
    const trace = traceOf([lanes(["a", "decode", 0], ["b", "decode", 0], ["a", "ended", 2], ["b", "ended", 3.9])]);
    const ledger = new Ledger(trace);
    ledger.update(4);
    expect(binAt(bins, 2)).toBe(1);
    expect(binAt(bins, 20)).toBe(-1);
    expect(endings(ledger.endedIn(0, 20), bins).values[0].each.slice(0, 3)).toEqual([0, 2, 0]);
    const { values, layers, samples } = latencies(ledger.endedIn(0, 20), bins, (request) => request.end);
    expect(values[0].each.slice(0, 3)).toEqual([null, 2950, null]);
    expect(samples?.slice(0, 3)).toEqual([0, 2, 0]);
    expect(layers[0].values.length).toBe(bins.x.length);
    // A bin alone is drawn from its beginning to its end.
    expect(Array.from(layers[0].values).slice(0, 6)).toEqual([null, null, 2950, 2950, null, null]);
    expect([bins.x[2], bins.x[3] < bins.x[4]]).toEqual([2, true]);
  });

  it("are as long as the time that is folded where it is drawn", () => {
    const map = new TimeMap([{ from: 5, to: 105 }], 1);
    const folded = binsOf(map, 0, 110, 11);
    expect([folded.edges[0], folded.edges[5], folded.edges[6], folded.edges[11]]).toEqual([0, 5, 105, 110]);
  });

  it("stack tokens and answers, the sum on top", () => {
    const { steps } = traceOf([{ kind: "steps", at: [0], seconds: [2], decode_tokens: [10], prefill_tokens: [6] }]);
    expect(throughput([steps], bins).layers.map((layer) => [layer.name, layer.values[0]])).toEqual([["recomputed", 8], ["prefilled", 8], ["decoded", 5]]);
    const series = answers([http(1, 200), http(1, 429, { count: 3 })], bins);
    expect(series.values.map((one) => [one.name, one.each[0]])).toEqual([["answered", 1], ["refused", 3]]);
  });
});

let page: HTMLElement;
beforeEach(() => {
  // The address follows the window a moment later: not after the last test.
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  page = document.createElement("div");
  document.body.append(page);
  timeWindow.value = null;
});
afterEach(() => {
  render(null, page);
  page.remove();
  vi.runAllTimers();
  vi.useRealTimers();
  timeWindow.value = null;
});

async function shown(entries: Entry[] = ENTRIES, recording = RECORDING): Promise<void> {
  current.value = { recording, trace: traceOf(entries), state: "ready", done: 0, total: 0, error: "", skew: 0 };
  route.value = parse("#/overview");
  version.value += 1;
  await act(() => render(<OverviewView />, page));
}
const find = (id: string): HTMLElement => page.querySelector(`[data-testid="${id}"]`)!;
const cells = (id: string): string[] => [...find(id).querySelectorAll("td")].map((one) => one.textContent!.replace(/\u202f/g, " "));

describe("the view", () => {
  it("tells the figures of all requests, and of those that ended in the marked stretch", async () => {
    await shown();
    expect(find("ov-count").textContent).toContain("2 requests ended in this recording");
    expect(cells("ov-end-to-end")).toEqual(["11.0 s", "13.7 s", "13.9 s", "2"]);
    await act(() => setWindow({ t0: 10, t1: 14 }));
    expect(find("ov-count").textContent).toContain("1 request ended in this stretch");
    expect(cells("ov-end-to-end")).toEqual(["8.00 s", "8.00 s", "8.00 s", "1"]);
    await act(() => find("ov-all").click());
    expect(timeWindow.value).toBeNull();
    expect(find("ov-count").textContent).toContain("2 requests");
  });

  it("takes a stretch from its two fields, and none that ends before it begins", async () => {
    await shown();
    const [from, until] = [...page.querySelectorAll<HTMLInputElement>(".ov-stretch input")];
    const put = (field: HTMLInputElement, text: string) => act(() => {
      field.value = text;
      field.dispatchEvent(new Event("input", { bubbles: true }));
    });
    const submit = () => act(() => void page.querySelector(".ov-stretch")!.dispatchEvent(new Event("submit", { bubbles: true, cancelable: true })));
    await put(from, "9");
    await put(until, "3");
    expect(page.querySelector<HTMLButtonElement>(".ov-stretch button")!.disabled).toBe(true);
    await submit();
    expect(timeWindow.value).toBeNull();
    await put(until, "13");
    await submit();
    expect(timeWindow.value).toEqual({ t0: 9, t1: 13 });
  });

  it("leads from a sentence to the moment: the request, its pause and the stretch", async () => {
    await shown();
    const [slowest] = find("slowest").querySelectorAll("li");
    expect(slowest.textContent).toContain("search");
    const why = slowest.querySelector<HTMLAnchorElement>(".ov-why")!;
    expect(why.textContent).toContain("14.0 s: its tool search took 5.00 s");
    const { view, query } = parse(why.getAttribute("href")!);
    expect([view, query.sel, query.pause]).toEqual(["timeline", "one", "3"]);
    expect(Number(query.t0)).toBeLessThan(3);
    expect(Number(query.t1)).toBeGreaterThan(8);
  });

  it("lists what slowed the stretch", async () => {
    await shown();
    const rows = [...page.querySelectorAll(".ov-slowed li")].map((one) => one.querySelector(".ov-cause")!.textContent);
    // In the queue are `one` for 1 + 1 + 2 s and `two` for 2 s; the tool took 5 s.
    expect(rows.slice(0, 2)).toEqual(["Queue", "Tool search"]);
    expect(rows).toContain("Recomputation");
  });

  it("counts refusals where they are recorded, and says where a server's are not", async () => {
    await shown([...ENTRIES, http(3, 200), http(4, 429, { count: 7, code: "too_many_requests" })]);
    expect(find("ov-refused").textContent).toBe("7 refused");
    expect(page.querySelector(".ov-answers .chip")!.textContent).toBe("429 too many at once too_many_requests × 7");
    await shown(ENTRIES, { ...RECORDING, source: "serve" });
    expect(page.textContent).toContain("Requests that the server refused are not in this recording");
  });

  it("shows what a user asked as text, whatever it is", async () => {
    const asked = JSON.stringify([{ role: "user", parts: [{ type: "text", content: "<b>How far</b> is it?" }] }]);
    const turn = span("chat m", "c", 0, 3, { attributes: { "caesura.request.id": "one", "gen_ai.input.messages": asked } });
    await shown([...ENTRIES, span("invoke_agent a", "run", 0, 14), turn]);
    expect(find("slowest").querySelector(".ov-label")!.textContent).toBe("<b>How far</b> is it?");
  });

  it("says so where nothing ended", async () => {
    await shown();
    await act(() => setWindow({ t0: 15, t1: 16 }));
    expect(page.textContent).toContain("No request ended in this stretch");
  });
});
