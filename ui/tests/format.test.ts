// Numbers, durations and addresses as they are written.
import { describe, expect, it } from "vitest";
import { format, parse } from "../src/app/router";
import { blockSeconds, brief, count, counted, duration, moment, number, percent, ratio, short } from "../src/format";

describe("durations", () => {
  it("have three digits and a unit", () => {
    const shown = [0, 12e-6, 0.0123, 0.9994, 0.9999, 3.017, 59.94, 59.96, 312, 3600, 7500, 90000].map(duration);
    expect(shown).toEqual(["0 s", "12 µs", "12.3 ms", "999 ms", "1.00 s", "3.02 s", "59.9 s", "1 min", "5 min 12 s", "1 h", "2 h 05 min", "1 d 01 h"]);
    expect([duration(null), duration(-2), duration(Infinity)]).toEqual(["–", "−2.00 s", "∞"]);
  });
});

describe("numbers", () => {
  it("are grouped, shortened, and counted", () => {
    expect([count(1234567), number(0.1234), number(0.0246819), number(12.345), number(99.96), number(1234.5)]).toEqual(["1\u202f234\u202f567", "0.123", "0.0247", "12.3", "100", "1\u202f235"]);
    expect([short(950), short(12_400), short(3_100_000)]).toEqual(["950", "12.4k", "3.1M"]);
    expect([counted(1, "block"), counted(2, "block"), blockSeconds(12)]).toEqual(["1 block", "2 blocks", "12 blk·s"]);
    expect([number(0.00078), number(-0.00078), blockSeconds(2e-5), number(0.001), short(2e-4), short(0)]).toEqual(["< 0.001", "> −0.001", "< 0.001 blk·s", "0.001", "2e-4", "0"]);
    expect([percent(0.051), percent(0.51), ratio(3, 2), ratio(1, 0)]).toEqual(["5.1\u202f%", "51\u202f%", "1.5×", "–"]);
  });

  it("that are missing are dashes", () => {
    expect([count(null), number(undefined), short(Number.NaN), blockSeconds(null), percent(undefined), moment(null)]).toEqual(Array(6).fill("–"));
  });
});

describe("moments", () => {
  it("are clock times, or seconds of a simulation", () => {
    expect(moment(12.3456)).toBe("12.346 s");
    expect(moment(1.7e9 + 0.25)).toMatch(/^\d\d:\d\d:\d\d\.250$/);
  });
});

describe("ids", () => {
  it("are cut in the middle", () => {
    expect(brief("chatcmpl-0123456789abcdef", 11)).toBe("chatc…bcdef");
    expect(brief("short")).toBe("short");
  });
});

describe("addresses", () => {
  it("say the view, its path and the query, and are read back", () => {
    const route = { view: "decision", path: ["req/1 ä", "17.25"], query: { rec: "3", q: "a b" } };
    expect(parse(format(route))).toEqual(route);
    expect(parse("")).toEqual({ view: "overview", path: [], query: {} });
    expect(parse("#/decision/%E0%A4%A/1").path).toEqual(["%E0%A4%A", "1"]);
    expect(format({ view: "tools", path: [], query: { q: "" } })).toBe("#/tools");
  });
});
