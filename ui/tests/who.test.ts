// Who asked: names on runs, what sub-agents have from their parents, and what is found by any id.
import { expect, test } from "vitest";
import type { Entry } from "../src/model/records";
import { Trace } from "../src/model/trace";
import { saidOf, whoOf } from "../src/model/who";
import { requestOf } from "../src/people/waiting";
import { find, itemsOf, listed } from "../src/views/session/items";
import { NO_MORE, choicesOf } from "../src/views/timeline/rows/filter";
import { lanesOf } from "../src/views/timeline/rows";

const NO_FILTERS = { q: "", tool: "", state: "", outcome: "" };

function run(number: number, request: string, attributes: Record<string, string>, parent: string | null = null): Entry {
  const named = { "gen_ai.operation.name": "invoke_agent", "caesura.request.id": request, ...attributes };
  return { kind: "span", trace: "t", span: `run-${number}`, parent, name: "invoke_agent", start: number, end: null, attributes: named };
}

/** Two requests of two tenants, and a sub-agent of the first that a call of it has started. */
function made(): Trace {
  const trace = new Trace();
  const lanes = ["session-a-11", "chatcmpl-b7-22", "session-c-33"];
  trace.add([
    { kind: "lanes", request: lanes, state: ["decode", "decode", "decode"], at: [1, 2, 3] },
    run(1, "session-a", {
      "caesura.tenant": "Ann", "user.id": "jo@example.com", "session.id": "main-2",
      "gen_ai.response.id": "resp_one", "caesura.x_request_id": "mine-7",
    }),
    { kind: "span", trace: "t", span: "call-1", parent: "run-1", name: "execute_tool ask", start: 1.5, end: null, attributes: { "gen_ai.operation.name": "execute_tool" } },
    run(2, "chatcmpl-b7", { "caesura.tenant": "Bob", "gen_ai.response.id": "chatcmpl-b7", "caesura.x_request_id": "req_99" }),
    run(3, "session-c", { "gen_ai.conversation.id": "child" }, "call-1"),
  ]);
  return trace;
}

test("a run that has only begun belongs to its request, and a sub-agent to whom its parent does", () => {
  const { spans } = made();
  expect(saidOf(whoOf(spans, spans.runOfRequest("session-a-11")))).toBe("Ann, jo@example.com, main-2");
  expect(whoOf(spans, spans.runOfRequest("chatcmpl-b7-22")).tenant).toBe("Bob");
  const child = whoOf(spans, spans.runOfRequest("session-c-33"));
  expect([child.tenant, child.user, child.session, child.parent]).toEqual(["Ann", "jo@example.com", "", "main-2"]);
  expect(whoOf(spans, spans.runOfRequest("session-x-1")).tenant).toBe("");
});

test("every id and name that a client has is found", () => {
  const trace = made();
  const items = itemsOf(trace, 9);
  const lanesBy = (q: string) => lanesOf(trace, 9, { filters: { ...NO_FILTERS, q } }).map((lane) => lane.id);
  for (const word of ["resp_one", "mine-7", "jo@example", "main-2"]) {
    expect(lanesBy(word).includes("session-a-11"), word).toBe(true);
    expect(lanesBy(word).includes("chatcmpl-b7-22"), word).toBe(false);
    expect(listed(items, word, "start", true).length >= 1, word).toBe(true);
  }
  expect(lanesBy("req_99")).toEqual(["chatcmpl-b7-22"]);
  for (const id of ["resp_one", "mine-7"]) expect(find(items, id)?.runs[0].span.span).toBe("run-1");
  expect(find(items, "chatcmpl-b7")?.runs[0].span.span).toBe("run-2");
  expect(requestOf(trace, "resp_one")).toBe("session-a-11");
});

test("requests are filtered and sessions sorted by who asked", () => {
  const trace = made();
  expect(choicesOf(trace).who).toEqual({ tenant: ["Ann", "Bob"], user: ["jo@example.com"], session: ["main-2"] });
  const only = lanesOf(trace, 9, { filters: NO_FILTERS, more: { ...NO_MORE, tenant: "Ann" } });
  expect(only.map((lane) => lane.id)).toEqual(["session-a-11", "session-c-33"]);
  expect(listed(itemsOf(trace, 9), "", "tenant", false).map((item) => item.who.tenant)).toEqual(["Bob", "Ann", "Ann"]);
});
