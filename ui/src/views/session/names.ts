// What runs are called.
import type { Run } from "../../model/spans";
import type { Trace } from "../../model/trace";
import { questionOf } from "./content";
import { textIn } from "./transcript";

/** What was asked first in a run; "" where no texts are recorded. */
export function askedIn(run: Run): string {
  const turn = run.turns.find(questionOf);
  return turn ? questionOf(turn) : "";
}

/** What was asked, else the agent, else the tools that were called. */
export function nameOfRun(run: Run): string {
  return askedIn(run) || textIn(run.span.attributes, "gen_ai.agent.name") || withTools(run);
}

function withTools(run: Run): string {
  const tools = new Set(run.calls.map((call) => textIn(call.attributes, "gen_ai.tool.name") ?? ""));
  tools.delete("");
  return tools.size ? `Run with ${[...tools].join(", ")}` : "Run";
}

/** What was asked in each request, by its id, where texts are recorded. */
export function questionsOf(trace: Trace): Map<string, string> {
  const found = new Map<string, string>();
  for (const run of trace.runs) {
    const question = askedIn(run);
    if (!question) continue;
    for (const turn of run.turns) {
      const lane = trace.laneOfSpan(turn);
      if (lane && !found.has(lane.id)) found.set(lane.id, question);
    }
  }
  return found;
}
