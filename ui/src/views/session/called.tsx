// What a request is called: what was asked where that is recorded, else the tools that it called, else its id.
import { trace, version } from "../../app/state";
import { brief } from "../../format";
import type { Lane } from "../../model/lane";
import type { Trace } from "../../model/trace";
import { factsOf } from "../timeline/rows/facts";
import { visible } from "./content";

export interface Label {
  text: string;
  /** Whether it is no more than the id. */
  bare: boolean;
}

export function labelOf(trace: Trace, lane: Lane): Label {
  const { question } = factsOf(trace, lane);
  if (question) return { text: visible(question), bare: false };
  const tools = new Map<string, number>();
  for (const { tool } of trace.pausesOf(lane.id)) if (tool) tools.set(tool, (tools.get(tool) ?? 0) + 1);
  const id = brief(lane.id, 14);
  if (!tools.size) return { text: id, bare: true };
  const named = [...tools].map(([tool, times]) => (times > 1 ? `${tool} × ${times}` : tool)).join(", ");
  return { text: `${visible(named)} · ${id}`, bare: false };
}

/** What a request is called, in at most `most` characters, with its id to point at. */
export function Called({ request, most = 40 }: { request: string; most?: number }) {
  version.value;
  const shown = trace.value;
  const lane = shown?.byRequest.get(request);
  const { text, bare } = shown && lane ? labelOf(shown, lane) : { text: brief(request, most), bare: true };
  return <span class={bare ? "mono" : ""} title={request} data-request={request}>{text.length > most ? `${text.slice(0, most - 1)}…` : text}</span>;
}
