// Links and titles: which recording a name means, and what a tab is called.
import { expect, test } from "vitest";
import { fresh, nameOf, named, numberOf, usual } from "../src/app/sharing/named";
import { titleOf } from "../src/app/sharing/title";
import { parse } from "../src/app/router";
import { recordingOf } from "../src/model/records";
import { span, traceOf } from "./world";

const old = recordingOf({ id: 1, title: "old", started: 1.7e9 });
const own = recordingOf({ id: 2, title: "own", started: 1.7e9 + 60, live: true, own: true });
const foreign = recordingOf({ id: 3, title: "of another server", started: 1.7e9 + 90, live: true });
const list = [foreign, own, old];

test("a name means one recording, whatever else has been recorded since", () => {
  expect(named(list, nameOf(old))).toBe(old);
  expect(named(list, "1")).toBe(old);
  expect(named(list, "live")).toBe(own);
  expect(usual(list)).toBe(own);
  expect(numberOf(nameOf(old))).toBe("1");
});

test("a recording of a new file is not taken for one of the old file with the same number", () => {
  const another = recordingOf({ id: 1, title: "another", started: 1.7e9 + 5000 });
  expect(named([another], nameOf(old))).toBeUndefined();
});

test("a simulation's recordings go by their ids", () => {
  expect(nameOf(recordingOf({ id: "caesura", started: 0 }))).toBe("caesura");
});

test("the title of a tab tells view, selection and recording", () => {
  const id = { "caesura.request.id": "chat-a" };
  const asked = { "gen_ai.input.messages": JSON.stringify([{ role: "user", parts: [{ type: "text", content: "What is 17 * 23?" }] }]) };
  const trace = traceOf([
    { kind: "lanes", request: ["chat-a-1f"], state: ["decode"], at: [1] },
    span("invoke_agent a", "run", 0, 3), { ...span("chat m", "c", 0, 1), attributes: { "gen_ai.operation.name": "chat", ...id, ...asked } },
  ]);
  expect(titleOf(parse("#/timeline?sel=chat-a-1f"), "mine", trace)).toBe("Timeline · What is 17 * 23? · mine · Caesura");
  expect(titleOf(parse("#/decision/another-request/3"), "mine", trace)).toBe("Decisions · another-request · mine · Caesura");
  expect(titleOf(parse("#/memory"), "", null)).toBe("Memory · Caesura");
});

test("another recording keeps what is a matter of the reader and not of the recording", () => {
  expect(fresh("7")).toEqual({ rec: "7", part: "", t0: "", t1: "", sel: "", pause: "" });
});
