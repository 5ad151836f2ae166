// Why requests took as long as they did: on traces small enough to say it beforehand.
import { describe, expect, it } from "vitest";
import { type Cause, type Kind, causesOf, piecesOf } from "../src/causes/causes";
import { type Request, lengthOf, perToken, requestOf } from "../src/causes/figures";
import { holdersOf } from "../src/causes/holders";
import { Ledger } from "../src/causes/ledger";
import { Pressure } from "../src/causes/pressure";
import { slowedIn } from "../src/causes/slowed";
import { strangest } from "../src/causes/strange";
import { sentenceOf } from "../src/causes/words";
import type { Entry } from "../src/model/records";
import { Trace } from "../src/model/trace";
import { sample } from "./sample";
import { ENTRIES, lanes, traceOf } from "./world";

/** `count` steps of `seconds` each from `at` on. */
function steps(at: number, count: number, seconds: number, more: Record<string, number>): Entry {
  const column = (value: number): number[] => new Array<number>(count).fill(value);
  return {
    kind: "steps", at: Array.from({ length: count }, (_, i) => at + i * seconds), seconds: column(seconds),
    ...Object.fromEntries(Object.entries(more).map(([name, value]) => [name, column(value)])),
  };
}

function told(entries: Entry[], id: string, best: number | null = null): { causes: Cause[]; text: string; request: Request } {
  const trace = traceOf(entries);
  const request = requestOf(trace, trace.byRequest.get(id)!, trace.to);
  const pressure = new Pressure(trace.steps);
  const causes = causesOf(piecesOf(request, trace, pressure, trace.to));
  const wait = causes.find((cause) => cause.kind === "blocks" || cause.kind === "paused-blocks")?.longest;
  const decode = causes.find((cause) => cause.kind === "decode")?.longest;
  const running = decode ? pressure.running(decode.from, decode.until) : null;
  const text = sentenceOf(causes, lengthOf(request, trace.to), {
    holders: wait ? holdersOf(trace, id, wait.from, wait.until) : null,
    others: running === null ? null : running - 1,
    best,
  }, request.end === null);
  return { causes, text: text.replace(/[\u202f\u00a0]/g, " "), request };
}

const seconds = (causes: readonly Cause[]): Partial<Record<Kind, number>> =>
  Object.fromEntries(causes.map((cause) => [cause.kind, cause.seconds]));

describe("the sentence", () => {
  const decode = [
    lanes(["a", "waiting", 0, 0, 0, 100], ["a", "prefill", 1, 7, 0, 100], ["a", "decode", 2, 7, 0, 100], ["a", "ended", 32, 0, 0, 220]),
    steps(2, 120, 0.25, { running: 60, decode_tokens: 60 }),
  ];

  it("tells of decoding in company how slow it was, and since how many ran", () => {
    expect(told(decode, "a", 0.02).text).toBe("32.0 s: 94 % decode of 120 tokens at 250 ms a token, since 59 others ran");
    expect(told(decode, "a", 0.2).text).toContain("at 250 ms a token, while 59 others ran");
    expect(told(decode.slice(0, 1), "a").text).toBe("32.0 s: 94 % decode of 120 tokens at 250 ms a token");
  });

  const waited = (held: string): Entry[] => [
    lanes(
      ["p", held, -5, 20, 0, 300], ["q", held, -4, 20, 0, 300], ["b", "waiting", 0, 0, 0, 50], ["b", "prefill", 12, 4, 0, 50],
      ["b", "decode", 12.5, 4, 0, 50], ["b", "ended", 13, 0, 0, 52],
    ),
    { kind: "wait", request: "b", since: 0, until: 12, steps: 48, lacked: { blocks: 48 } },
    steps(0, 48, 0.25, { running: 1, running_blocks: held === "paused" ? 0 : 40, paused_blocks: held === "paused" ? 40 : 0 }),
  ];

  it("names those who held the blocks that it waited for", () => {
    expect(told(waited("paused"), "b").text).toBe("13.0 s: waited 12.0 s for blocks that 2 paused sessions held");
    expect(seconds(told(waited("paused"), "b").causes)["paused-blocks"]).toBe(12);
    expect(told(waited("decode"), "b").text).toBe("13.0 s: waited 12.0 s for blocks that 2 other requests held");
    expect(seconds(told(waited("decode"), "b").causes).blocks).toBe(12);
  });

  it("splits a wait by the steps in which each thing was lacking", () => {
    const [all, , step] = waited("paused");
    const wait: Entry = { kind: "wait", request: "b", since: 0, until: 12, steps: 48, lacked: { slots: 36, tokens: 12 } };
    const { causes, text } = told([all, wait, step], "b");
    expect(seconds(causes)).toMatchObject({ slots: 9, tokens: 3 });
    expect(text).toContain("waited 9.00 s for a slot");
    expect(text).toContain("waited 3.00 s since others took the tokens of the steps");
  });

  it("tells of a wait without a record as the queue, and of one that goes on", () => {
    const { text } = told([lanes(["c", "waiting", 0], ["d", "decode", 0], ["d", "ended", 8])], "c");
    expect(text).toBe("8.00 s so far: waited 8.00 s in the queue");
  });

  it("names the tool, or the person", () => {
    const paused = (person: boolean): Entry[] => [
      lanes(
        ["e", "decode", 0, 4, 0, 50], ["e", "paused", 1, 4, 0, 60], ["e", "dropped", 20, 0, 0, 60], ["e", "waiting", 32, 0, 0, 80],
        ["e", "recompute", 32.5, 6, 0, 80], ["e", "decode", 33, 6, 0, 80], ["e", "ended", 34, 0, 0, 90],
      ),
      { kind: "opening", request: "e", session: "e", tool: "search", person, at: 1 },
      { kind: "pause", request: "e", session: "e", tool: "search", at: 1, outcome: "resumed", pause_seconds: 31, recomputed_tokens: 60 },
    ];
    expect(told(paused(false), "e").text).toBe("34.0 s: its tool search took 31.0 s");
    expect(told(paused(true), "e").text).toBe("34.0 s: a person took 31.0 s");
    const { causes } = told(paused(false), "e");
    expect(causes.find((cause) => cause.kind === "tool")).toMatchObject({ name: "search", times: 1 });
    expect(causes.find((cause) => cause.kind === "recompute")).toMatchObject({ seconds: 0.5, tokens: 60 });
  });

  it("tells of a long prompt, and of recomputation after KV was dropped", () => {
    expect(told([lanes(["f", "waiting", 0, 0, 0, 8000], ["f", "prefill", 0.5, 500, 0, 8000], ["f", "decode", 6.5, 500, 0, 8000], ["f", "ended", 7, 0, 0, 8010])], "f").text)
      .toBe("7.00 s: prefill of 8 000 tokens took 6.00 s");
    expect(told([lanes(["g", "recompute", 0, 500, 0, 3000], ["g", "decode", 6, 500, 0, 3000], ["g", "ended", 7, 0, 0, 3010])], "g").text)
      .toBe("7.00 s: recomputed 3 000 tokens in 6.00 s after its KV was dropped");
  });

  it("tells decoding from what steps took longer for prompts of others", () => {
    const { causes, text } = told([
      lanes(["h", "decode", 0, 4, 0, 50], ["h", "ended", 10, 0, 0, 90], ["i", "prefill", 2, 4, 0, 8000], ["i", "ended", 8, 0, 0, 8000]),
      steps(0, 20, 0.1, { running: 1, decode_tokens: 1 }),
      steps(2, 3, 2, { running: 2, decode_tokens: 1, prefill_tokens: 2000 }),
      steps(8, 20, 0.1, { running: 1, decode_tokens: 1 }),
    ], "h");
    expect(seconds(causes).prompts).toBeCloseTo(3 * 1.9);
    expect(seconds(causes).decode).toBeCloseTo(10 - 3 * 1.9);
    expect(text).toContain("its steps took 5.70 s longer for prompts of others");
  });
});

describe("figures of a request", () => {
  it("leave out what its client did after its answer", () => {
    const call = (outcome: string): Request => told([
      lanes(["k", "waiting", 0], ["k", "decode", 1, 2, 0, 10], ["k", "paused", 3, 2, 0, 30], ["k", "ended", 60, 0, 0, 30]),
      { kind: "pause", request: "k", session: "k", tool: "weather", at: 3, outcome, handling: "none", pause_seconds: 57 },
    ], "k").request;
    expect(call("followed").end).toBe(3);
    expect(call("followed").engine).toBe(3);
    expect(call("ended").end).toBe(60);
    expect(call("ended").engine).toBe(3);
  });

  it("are those of the world whose figures are worked out by hand", () => {
    const { request } = told(ENTRIES, "one");
    expect(request).toMatchObject({ start: 0, end: 14, firstToken: 2, prompt: 100, decoded: 20 + 5 + 15, pauses: 1 });
    expect(perToken(request)).toBeCloseTo(3 / 40);
    expect(request.engine).toBe(9);
  });

  it("and the stretches of its life are as long as the request, whatever happened", () => {
    const trace = traceOf(sample({ sessions: 60, content: false }));
    const pressure = new Pressure(trace.steps);
    for (const lane of trace.lanes) {
      const request = requestOf(trace, lane, trace.to);
      const pieces = piecesOf(request, trace, pressure, trace.to);
      const sum = pieces.reduce((all, piece) => all + piece.seconds, 0);
      expect(sum).toBeCloseTo(lengthOf(request, trace.to), 6);
      const cut = request.start + lengthOf(request, trace.to) / 3;
      const parts = [causesOf(pieces, -Infinity, cut), causesOf(pieces, cut)].flat();
      expect(parts.reduce((all, cause) => all + cause.seconds, 0)).toBeCloseTo(sum, 6);
    }
  });
});

describe("the ledger", () => {
  const entries = sample({ sessions: 50, content: false });

  it("knows the same after many small batches as after one", () => {
    const whole = traceOf(entries);
    const once = new Ledger(whole);
    once.update(whole.to);
    const trace = new Trace();
    const often = new Ledger(trace);
    for (let i = 0; i < entries.length; i += 7) {
      trace.add(entries.slice(i, i + 7));
      often.update(trace.to);
      if (i % 70 === 0) slowedIn(often, trace.from, trace.to, trace.to);
    }
    const spent = (ledger: Ledger): number => slowedIn(ledger, whole.from, whole.to, whole.to).reduce((sum, one) => sum + one.seconds, 0);
    expect(spent(often)).toBeCloseTo(spent(once), 3);
    const said = (ledger: Ledger) => ledger.ended.map(({ lane, end, firstToken, decoded, seconds: spent }) => [lane.id, end, firstToken, decoded, [...spent]]);
    expect(said(often)).toEqual(said(once));
    expect(often.open.map((one) => one.lane.id).sort()).toEqual(once.open.map((one) => one.lane.id).sort());
  });

  it("counts a request in the one window in which it ended, also at its edge", () => {
    const trace = traceOf([lanes(["a", "decode", 0], ["b", "decode", 0], ["c", "decode", 1], ["a", "ended", 2], ["b", "ended", 4], ["c", "ended", 6])]);
    const ledger = new Ledger(trace);
    ledger.update(6);
    const ended = (from: number, until: number): string => ledger.endedIn(from, until).map((one) => one.lane.id).join("");
    expect([ended(0, 2), ended(2, 4), ended(4, 6), ended(6, 7)]).toEqual(["", "a", "b", "c"]);
    expect(ended(-1, 6.1)).toBe("abc");
    expect(ledger.hereIn(2, 3).map((one) => one.lane.id).join("")).toBe("abc");
    expect(ledger.hereIn(2.5, 3).map((one) => one.lane.id).join("")).toBe("bc");
  });
});

/** 200 requests at once: one tool is slow, one prompt is long, and the blocks are too few. */
function burst(): Entry[] {
  const rows: Parameters<typeof lanes> = [];
  const entries: Entry[] = [];
  for (let i = 0; i < 200; i++) {
    const id = `r${i}`;
    const begin = 1 + (i % 20);
    rows.push([id, "waiting", 0, 0, 0, 50], [id, "prefill", begin, 4, 0, 50], [id, "decode", begin + 0.1, 4, 0, 50]);
    entries.push({ kind: "wait", request: id, since: 0, until: begin, steps: 9, lacked: { blocks: 9 } });
    if (i === 7) {
      rows.push([id, "paused", begin + 0.5, 6, 0, 60], [id, "decode", begin + 30, 6, 0, 60]);
      entries.push({ kind: "opening", request: id, session: id, tool: "slow_search", at: begin + 0.5 });
    }
    rows.push([id, "ended", i === 7 ? begin + 31 : begin + 1, 0, 0, 70]);
  }
  rows.push(["long", "waiting", 0, 0, 0, 20000], ["long", "prefill", 2, 900, 0, 20000], ["long", "decode", 11, 900, 0, 20000], ["long", "ended", 12, 0, 0, 20010]);
  rows.sort((a, b) => a[2] - b[2]);
  return [lanes(...rows), ...entries, steps(1, 100, 0.3, { running: 10, running_blocks: 30, paused_blocks: 10, decode_tokens: 10 })];
}

describe("what slowed a stretch", () => {
  const trace = traceOf(burst());
  const ledger = new Ledger(trace);
  ledger.update(trace.to);

  it("names all that slowed a burst, and whose the longest stretch was", () => {
    const found = slowedIn(ledger, 0, trace.to + 1, trace.to);
    const of = (kind: Kind) => found.find((one) => one.kind === kind)!;
    const waited = of("blocks").seconds + of("paused-blocks").seconds;
    expect(waited).toBeCloseTo(10 * (20 * 21) / 2);
    expect(of("paused-blocks").seconds / waited).toBeCloseTo(0.25, 1);
    expect(of("blocks").requests).toBe(200);
    expect(of("tool")).toMatchObject({ name: "slow_search", requests: 1, seconds: 29.5 });
    expect(of("tool").request.lane.id).toBe("r7");
    expect(of("prefill").request.lane.id).toBe("long");
    expect(of("prefill").longest).toMatchObject({ seconds: 9, tokens: 20000 });
  });

  it("counts of each request the seconds within, so that two halves are the whole", () => {
    const sum = (from: number, until: number): number => slowedIn(ledger, from, until, trace.to).reduce((all, one) => all + one.seconds, 0);
    expect(sum(0, 6.3) + sum(6.3, 50)).toBeCloseTo(sum(0, 50), 6);
    expect(slowedIn(ledger, 22, 24, trace.to).map((one) => one.kind)).toEqual(["tool"]);
    expect(sum(22, 24)).toBeCloseTo(2);
  });
});

describe("strange requests", () => {
  const request = (id: string, length: number, prompt = 100, decoded = 50): Request => ({
    lane: { id } as Request["lane"], start: 0, end: length, seconds: new Float64Array(10), engine: length, firstToken: 0, prompt, decoded, pauses: 0,
  });
  const usual = Array.from({ length: 30 }, (_, i) => request(`r${i}`, 1 + 0.01 * (i % 7)));

  it("are far from the median of their size, however many are", () => {
    const odd = [request("slow", 9), request("slower", 12), request("quick", 0.2)];
    const found = strangest([...usual, ...odd], 8);
    expect(found.map((one) => one.request.lane.id).sort()).toEqual(["quick", "slow", "slower"]);
    expect(found[0].request.lane.id).toBe("slower");
    expect(found.find((one) => one.request.lane.id === "slow")!.times).toBeCloseTo(9 / 1.03, 0);
  });

  it("are not those that are large, nor any where all are alike or few", () => {
    const large = Array.from({ length: 12 }, (_, i) => request(`l${i}`, 20 + 0.1 * i, 9000, 900));
    expect(strangest([...usual, ...large], 8)).toEqual([]);
    expect(strangest([request("a", 1), request("b", 50)], 8)).toEqual([]);
  });
});
