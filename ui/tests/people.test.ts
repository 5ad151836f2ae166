// What waits for a person: what counts as an item, what is shown of its text, and what became of it.
import { describe, expect, it } from "vitest";
import { type Item, disclosed, doneOf, endOf, itemOf } from "../src/people/items";
import { requestOf } from "../src/people/waiting";
import { lanes, span, traceOf } from "./world";

const ITEM: Item = {
  id: "i1", kind: "approval", session: "chatcmpl-1", tool: "pay", question: "", arguments: '{"amount": 5}', options: [],
  created: 1e9, deadline: 1e9 + 60, default: null, state: "open", answer: null, approved: null, who: "",
};

describe("an item", () => {
  it("is taken as the server tells it, and nothing else is one", () => {
    expect(itemOf({ ...ITEM })).toEqual(ITEM);
    for (const bad of [null, 3, {}, { ...ITEM, kind: "poem" }, { ...ITEM, arguments: { amount: 5 } }, { ...ITEM, deadline: "soon" }, { ...ITEM, id: "" }]) {
      expect(itemOf(bad)).toBeNull();
    }
    expect(itemOf({ ...ITEM, options: ["a", 3], approved: "yes" })).toMatchObject({ options: ["a"], approved: null });
  });

  it("is told with who was first, and that it ended", () => {
    expect(endOf({ ...ITEM, state: "answered", approved: true, who: "Eva" })).toBe("It was approved elsewhere by Eva");
    expect(endOf({ ...ITEM, state: "answered", approved: false, answer: "no\u202e" })).toBe("It was denied elsewhere: no⟨U+202E⟩");
    expect(endOf({ ...ITEM, kind: "question", state: "answered", answer: "Oslo" })).toBe("It was answered elsewhere: Oslo");
    expect(endOf({ ...ITEM, state: "expired" })).toContain("deadline passed");
    expect(endOf({ ...ITEM, state: "cancelled" })).toContain("request has ended");
    expect(doneOf({ ...ITEM, approved: true }, ITEM)).toBe("Approved. The call runs now.");
    expect(doneOf({ ...ITEM, approved: true }, { ...ITEM, state: "orphaned" })).not.toContain("runs now");
  });
});

describe("the text of a call", () => {
  it.each([
    ["turned \u202e round", "turned ⟨U+202E⟩ round"],
    ["zero\u200bwidth, soft\u00adhyphen, joined\u2060", "zero⟨U+200B⟩width, soft⟨U+00AD⟩hyphen, joined⟨U+2060⟩"],
    ["tags \u{e0041}", "tags ⟨U+E0041⟩"],
    ["a\u00a0space, a\ttab, a\rreturn", "a⟨U+00A0⟩space, a⟨U+0009⟩tab, a⟨U+000D⟩return"],
    ["filler \u3164, line\u2028", "filler ⟨U+3164⟩, line⟨U+2028⟩"],
    ["two\nlines, ø, 漢字, 😀, <b>", "two\nlines, ø, 漢字, 😀, <b>"],
  ])("shows what has no form of its own: %j", (text, shown) => {
    expect(disclosed(text)).toBe(shown);
  });
});

it("belongs to the request that its completion runs as", () => {
  const trace = traceOf([
    lanes(["r1-0", "paused", 1], ["r2-0", "decode", 1]),
    span("invoke_agent a", "run", 0, null, { attributes: { "gen_ai.response.id": "chatcmpl-1" } }),
    span("chat m", "s2", 0, 1, { attributes: { "caesura.request.id": "r1" } }),
  ]);
  expect(requestOf(trace, "chatcmpl-1")).toBe("r1-0");
  expect(requestOf(trace, "chatcmpl-2")).toBeUndefined();
});
