// The tree of spans: runs of agents, each with its turns of the model and its tool calls.
import type { SpanEntry } from "./records";

/** A run (`invoke_agent`) with its turns (`chat`) and calls (`execute_tool`), each in time order. */
export interface Run {
  /** "TRACE/SPAN" of its span. */
  id: string;
  span: SpanEntry;
  turns: SpanEntry[];
  calls: SpanEntry[];
  /** Counts its spans as they come: what is made from the run is made anew when this has changed. */
  changes: number;
}

/** A span's own key, which later versions of it share. */
export const keyOf = (span: SpanEntry): string => `${span.trace}/${span.span}`;

/** `invoke_agent`, `chat`, `execute_tool`, or what another span is called. */
export function operationOf(span: SpanEntry): string {
  const named = span.attributes?.["gen_ai.operation.name"];
  return typeof named === "string" ? named : span.name.split(" ", 1)[0];
}

export class Spans {
  /** In order of first appearance. */
  readonly runs: Run[] = [];
  private readonly byKey = new Map<string, Run>();
  private readonly children = new Map<string, SpanEntry[]>();
  private readonly firstTurns = new Map<string, SpanEntry>();
  private readonly byRequest = new Map<string, Run>();
  /** The run of each call, by the call's key: it is the parent of runs that the call has started. */
  private readonly callers = new Map<string, string>();
  /** The ids under which requests went on that were lost with their engine. */
  private readonly wentOnAs = new Map<string, string[]>();

  run(id: string): Run | undefined {
    return this.byKey.get(id);
  }

  /** The first turn of the model that a request of the engine was made for; its id may have a suffix here. */
  turnOf(request: string): SpanEntry | undefined {
    const own = this.firstTurns.get(request) ?? this.firstTurns.get(request.slice(0, Math.max(0, request.lastIndexOf("-"))));
    return own ?? this.wentOnAs.get(request)?.map((id) => this.firstTurns.get(id)).find((turn) => turn !== undefined);
  }

  /** A request goes on as another one, by whose id spans name it from now on. */
  goesOn(request: string, as: string): void {
    const known = this.wentOnAs.get(request);
    if (known) known.push(as);
    else this.wentOnAs.set(request, [as]);
  }

  /** The run that a request of the engine was made for, also while its first turn is not over. */
  runOfRequest(request: string): Run | undefined {
    const turn = this.turnOf(request);
    const own = turn && this.runOf(turn);
    return own ?? this.byRequest.get(request) ?? this.byRequest.get(request.slice(0, Math.max(0, request.lastIndexOf("-"))));
  }

  /** The run whose call has started a run. */
  parentOf(run: Run): Run | undefined {
    const above = parentOf(run.span);
    return this.byKey.get(this.callers.get(above) ?? above);
  }

  /** The run that a turn or a call belongs to. */
  runOf(span: SpanEntry): Run | undefined {
    return this.byKey.get(parentOf(span));
  }

  add(span: SpanEntry): void {
    if (!span.trace || !span.span || !Number.isFinite(span.start)) return;
    const operation = operationOf(span);
    if (operation === "invoke_agent") this.addRun(span);
    else if (operation === "chat" || operation === "execute_tool") this.addChild(span);
  }

  private addRun(span: SpanEntry): void {
    const id = keyOf(span);
    const known = this.byKey.get(id);
    if (known) {
      if (known.span.end === null || span.end !== null) known.span = span;
      known.changes += 1;
      return;
    }
    const run: Run = { id, span, turns: [], calls: [], changes: 0 };
    this.byKey.set(id, run);
    const request = span.attributes?.["caesura.request.id"];
    if (typeof request === "string" && !this.byRequest.has(request)) this.byRequest.set(request, run);
    this.runs.push(run);
    for (const child of this.children.get(id) ?? []) place(run, child);
    this.children.delete(id);
  }

  private addChild(span: SpanEntry): void {
    const request = span.attributes?.["caesura.request.id"];
    const known = typeof request === "string" ? this.firstTurns.get(request) : undefined;
    if (typeof request === "string" && (!known || known.span === span.span)) this.firstTurns.set(request, span);
    const parent = parentOf(span);
    if (operationOf(span) === "execute_tool") this.callers.set(keyOf(span), parent);
    const run = this.byKey.get(parent);
    if (run) {
      place(run, span);
      return;
    }
    const waiting = this.children.get(parent);
    if (waiting) waiting.push(span);
    else this.children.set(parent, [span]);
  }
}

const parentOf = (span: SpanEntry): string => `${span.trace}/${span.parent ?? ""}`;

function place(run: Run, span: SpanEntry): void {
  run.changes += 1;
  const list = operationOf(span) === "chat" ? run.turns : run.calls;
  const same = list.findIndex((one) => one.span === span.span);
  if (same >= 0) {
    if (list[same].end === null || span.end !== null) list[same] = span;
    return;
  }
  list.push(span);
  for (let i = list.length - 1; i > 0 && list[i - 1].start > list[i].start; i--) {
    [list[i - 1], list[i]] = [list[i], list[i - 1]];
  }
}
