// What counts as a failure, and how often.
import { expect, test } from "vitest";
import { failuresOf, failuresSaid } from "../src/model/failures";
import type { SpanEntry } from "../src/model/records";
import { nameOfRun } from "../src/views/session/names";
import { span, traceOf } from "./world";

const broken = (type: string, more: Partial<SpanEntry> = {}): Partial<SpanEntry> =>
  ({ status: "error", ...more, attributes: { "error.type": type, ...more.attributes } });

function said(...spans: SpanEntry[]): string {
  const [run] = traceOf(spans).runs;
  return failuresSaid(failuresOf(run).map((one) => one.kind));
}

test("a client that leaves is one failure, whatever it ends", () => {
  expect(said(
    span("invoke_agent a", "run", 0, 3, broken("cancelled")), span("chat m", "c", 0, 3, broken("cancelled")),
    span("execute_tool x", "t", 1, 3, broken("cancelled")),
  )).toBe("client left");
});

test("an engine that fails is told once, and what failed before stays a failure", () => {
  expect(said(
    span("invoke_agent a", "run", 0, 3, broken("EngineFailed")), span("chat m", "c", 0, 3, broken("EngineFailed")),
    span("execute_tool x", "t", 1, 2, broken("timeout")),
  )).toBe("1 engine failed, 1 timed out");
});

test("a call that a person denied is called so", () => {
  const settled = { name: "caesura.person.settled", at: 2, attributes: { "caesura.person.state": "answered", "caesura.person.approved": false } };
  const refused = broken("failed", { events: [settled] });
  expect(said(span("invoke_agent a", "run", 0, 3), span("execute_tool mail", "t", 1, 2, refused))).toBe("denied");
  expect(said(span("invoke_agent a", "run", 0, 3), span("execute_tool mail", "t", 1, 2, refused), span("execute_tool mail", "u", 2, 3, refused))).toBe("2 denied");
});

test("a call that could not be read counts", () => {
  const events = [{ name: "caesura.call_malformed", at: 1, attributes: { "gen_ai.tool.name": "serch" } }];
  expect(said(span("invoke_agent a", "run", 0, 3), span("chat m", "c", 0, 1, { events }))).toBe("unreadable call");
});

test("a run is called by its question, its agent or its tools, and never by its kind of span", () => {
  const asked = { attributes: { "gen_ai.input.messages": JSON.stringify([{ role: "user", parts: [{ type: "text", content: "Why?" }] }]) } };
  const agent = { attributes: { "gen_ai.agent.name": "helper" } };
  const tool = span("execute_tool x", "t", 1, 2, { attributes: { "gen_ai.tool.name": "search" } });
  const named = (...spans: SpanEntry[]): string => nameOfRun(traceOf(spans).runs[0]);
  expect(named(span("invoke_agent helper", "run", 0, 3, agent), span("chat m", "c", 0, 1, asked))).toBe("Why?");
  expect(named(span("invoke_agent helper", "run", 0, 3, agent), span("chat m", "c", 0, 1))).toBe("helper");
  expect(named(span("invoke_agent", "run", 0, 3), tool)).toBe("Run with search");
  expect(named(span("invoke_agent", "run", 0, 3))).toBe("Run");
});
