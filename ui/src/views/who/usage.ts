// Who used the engine in a stretch of time: tokens, memory, time of its steps and failures, by what asked for them.
import { holds } from "../../causes/holders";
import { Shares } from "../../causes/shares";
import { failingIn } from "../../model/failing";
import { DECODE, type Lane, LOADING, LOST, WAITING, isActive, isPause } from "../../model/lane";
import { resultTokensOf } from "../../model/loops";
import type { SpanEntry } from "../../model/records";
import type { Run } from "../../model/spans";
import type { Trace } from "../../model/trace";
import { NOBODY, whoOf } from "../../model/who";
import { numberIn, textIn } from "../session/transcript";

export const DIMENSIONS = ["tenant", "user", "session", "tool", "model"] as const;
/** Servers are a dimension where recordings of several are shown as one. */
export type Dimension = (typeof DIMENSIONS)[number] | "server";

export interface Usage {
  /** Requests of the engine that were here. */
  requests: number;
  /** Whole inputs of turns, and what of them was in the cache. */
  prompt: number;
  cached: number;
  /** Prompt tokens of which it is known how many were cached. */
  told: number;
  decoded: number;
  /** Context that was computed again behind pauses. */
  recomputed: number;
  blockSeconds: number;
  /** Shares of the engine's steps. */
  seconds: number;
  failures: number;
  /** At the stretch's moment: requests that are computed or copied, that wait for a tool or a person, that queue. */
  running: number;
  paused: number;
  waiting: number;
  /** Blocks that those not in the queue hold then. */
  held: number;
}

export interface UsageRow {
  id: string;
  /** "" where nobody is named. */
  name: string;
  tenant: string;
  /** Whether the client named it; else it is an id. */
  named: boolean;
  own: Usage;
  /** With all sub-agents below it. */
  whole: Usage;
  children: UsageRow[];
}

/** What is asked of a trace. */
export interface Stretch {
  trace: Trace;
  from: number;
  until: number;
  now: number;
  /** Tokens of a block; 0: not known. */
  blockTokens: number;
  /** When it is asked who is there; without it nobody is counted. */
  moment?: number;
}

/** The usage by one dimension, and by all together. */
export interface Used {
  rows: UsageRow[];
  total: Usage;
  /** Seconds of all steps; the rows have at most these. */
  steps: number;
}

export const nothing = (): Usage => ({
  requests: 0, prompt: 0, cached: 0, told: 0, decoded: 0, recomputed: 0, blockSeconds: 0, seconds: 0, failures: 0,
  running: 0, paused: 0, waiting: 0, held: 0,
});

interface Asker {
  tenant: string;
  user: string;
  session: string;
  /** Whether the session has the name that its client gave it. */
  named: boolean;
  /** The session that started it. */
  parent: string;
  model: string;
  server: string;
}

/** Return who used the engine in a stretch, in no order. */
export function usedBy(dimension: Dimension, stretch: Stretch): Used {
  const tally = new Tally(dimension);
  let steps = 0;
  // Each engine's steps are shared by its own requests.
  for (const trace of stretch.trace.parts) steps += tally.take({ ...stretch, trace, now: Math.min(stretch.now, trace.cut) });
  const rows = tally.rows();
  const total = nothing();
  for (const { own } of rows.all) add(total, own);
  return { rows: rows.roots, total, steps };
}

class Tally {
  private readonly found = new Map<string, UsageRow>();
  /** The row of each session that another one started, and that one's. */
  private readonly parents = new Map<string, string>();
  private readonly askers = new Map<Run, Asker>();

  private stretch!: Stretch;
  private shares!: Shares;

  constructor(private readonly dimension: Dimension) {}

  /** Add all of one engine; return the seconds of its steps. */
  take(stretch: Stretch): number {
    this.stretch = stretch;
    this.shares = new Shares(stretch.trace, stretch.from, stretch.until, stretch.blockTokens);
    this.addLanes();
    this.addTurns();
    this.addPauses();
    this.addFailures();
    return this.shares.seconds;
  }

  private addLanes(): void {
    const { trace, from, until, now } = this.stretch;
    for (const lane of trace.lanes) {
      if (!lane.length || lane.start >= until || lane.left < from) continue;
      const run = trace.spans.runOfRequest(lane.id);
      const asker = run ? this.askerOf(run) : { ...this.nobody(), session: lane.session };
      if (this.dimension === "tool") this.addByTool(lane, asker);
      else this.add(asker, { requests: 1, ...this.shares.of(lane, now), ...this.presenceOf(lane) });
      if (!run) this.add(asker, tokensOf(lane, from, until));
    }
  }

  /** A tool has its pauses until the request decodes again. */
  private addByTool(lane: Lane, asker: Asker): void {
    const tools = toolsOf(this.stretch.trace, lane);
    for (const tool of new Set(tools)) {
      const taken = this.shares.of(lane, this.stretch.now, (row) => tools[row] === tool);
      this.add(asker, { requests: 1, ...taken, ...this.presenceOf(lane, (row) => tools[row] === tool) }, tool);
    }
  }

  /** What a request does and holds at the moment, if that is in one of the rows that `takes` names. */
  private presenceOf(lane: Lane, takes: (row: number) => boolean = () => true): Partial<Usage> {
    const { moment } = this.stretch;
    if (moment === undefined || moment >= lane.left) return {};
    const row = lane.rowAt(moment);
    if (row < 0 || lane.kv[row] === LOST || !takes(row)) return {};
    const state = lane.kv[row];
    const does = isPause(state) ? "paused" : state === WAITING ? "waiting" : "running";
    return { [does]: 1, held: holds(lane, row) ? lane.blocks[row] : 0 };
  }

  /** A turn's tokens count when it ends. */
  private addTurns(): void {
    for (const run of this.stretch.trace.runs) {
      for (const { end, attributes } of run.turns) {
        if (end === null || !this.within(end)) continue;
        const prompt = numberIn(attributes, "gen_ai.usage.input_tokens") ?? 0;
        const cached = numberIn(attributes, "gen_ai.usage.cache_read.input_tokens");
        const decoded = numberIn(attributes, "gen_ai.usage.output_tokens") ?? 0;
        this.add(this.askerOf(run), { prompt, decoded, cached: Math.min(cached ?? 0, prompt), told: cached === null ? 0 : prompt });
      }
    }
  }

  private addPauses(): void {
    const { trace } = this.stretch;
    for (const pause of trace.pauses) {
      const behind = pause.at + (pause.wholeSeconds ?? NaN);
      if (!this.within(behind)) continue;
      const lane = trace.byRequest.get(pause.request);
      const run = trace.spans.runOfRequest(pause.request);
      const asker = run ? this.askerOf(run) : { ...this.nobody(), session: lane?.session ?? pause.session };
      this.add(asker, { recomputed: pause.end?.recomputed_tokens ?? 0 }, pause.tool ?? "");
      if (this.dimension !== "tool") continue;
      // What a tool brought into the context is the tool's, and not the model's.
      const brought = resultTokensOf(trace, pause) ?? 0;
      this.add(asker, { prompt: brought }, pause.tool ?? "");
      this.add(asker, { prompt: -brought });
    }
  }

  private addFailures(): void {
    const { trace, from, until } = this.stretch;
    for (const group of failingIn(trace, from, until)) {
      if (group.kind === "engine died") continue;
      for (const { run, tenant, times, where } of group.all) {
        const asker = run ? this.askerOf(run) : { ...this.nobody(), tenant };
        this.add(asker, { failures: times }, trace.tools.has(where) ? where : "");
      }
    }
  }

  /** The rows, and those of them that are below none. */
  rows(): { roots: UsageRow[]; all: UsageRow[] } {
    const children = new Set<UsageRow>();
    for (const [id, parent] of this.parents) {
      const row = this.found.get(id)!;
      const above = this.found.get(parent) ?? this.empty(parent);
      // Names are the clients': two sessions may each be said to have started the other.
      if (this.isAbove(id, parent)) continue;
      above.children.push(row);
      children.add(row);
    }
    const all = [...this.found.values()];
    const roots = all.filter((row) => !children.has(row));
    roots.forEach(summed);
    return { roots, all };
  }

  /** Whether `id` is `other`, or above it. */
  private isAbove(id: string, other: string): boolean {
    const seen = new Set<string>();
    for (let at: string | undefined = other; at !== undefined && !seen.has(at); at = this.parents.get(at)) {
      if (at === id) return true;
      seen.add(at);
    }
    return false;
  }

  /** A session that started others, of which nothing is in the stretch. */
  private empty(id: string): UsageRow {
    const [tenant, name] = JSON.parse(id) as [string, string];
    const row = { id, name, tenant, named: true, own: nothing(), whole: nothing(), children: [] };
    this.found.set(id, row);
    return row;
  }

  private add(asker: Asker, more: Partial<Usage>, tool = ""): void {
    const { dimension } = this;
    const name = dimension === "tool" ? tool : asker[dimension];
    // Names of users and sessions are their tenant's.
    const tenant = dimension === "user" || dimension === "session" ? asker.tenant : "";
    const id = JSON.stringify([tenant, name]);
    let row = this.found.get(id);
    if (!row) {
      const named = dimension !== "session" || asker.named;
      this.found.set(id, (row = { id, name, tenant, named, own: nothing(), whole: nothing(), children: [] }));
      if (dimension === "session" && asker.parent) this.parents.set(id, JSON.stringify([tenant, asker.parent]));
    }
    add(row.own, more);
  }

  private askerOf(run: Run): Asker {
    let asker = this.askers.get(run);
    if (!asker) this.askers.set(run, (asker = askerOf(this.stretch.trace, run)));
    return asker;
  }

  private nobody(): Asker {
    return { ...NOBODY, named: false, model: "", server: this.stretch.trace.server };
  }

  private within(at: number): boolean {
    return at >= this.stretch.from && at < this.stretch.until;
  }
}

function askerOf(trace: Trace, run: Run): Asker {
  const who = whoOf(trace.spans, run);
  const above = trace.spans.parentOf(run);
  const started = who.parent || (above ? sessionOf(trace, above) : "");
  const model = [run.span, ...run.turns].map(modelOf).find(Boolean) ?? "";
  const session = sessionOf(trace, run);
  return {
    tenant: who.tenant, user: who.user, session, named: session === who.session, model, server: trace.server,
    parent: started === session ? "" : started,
  };
}

/** The name of a run's session, or the id of its conversation or of its session in the engine. */
function sessionOf(trace: Trace, run: Run): string {
  const { attributes } = run.span;
  const named = textIn(attributes, "session.id") ?? textIn(attributes, "gen_ai.conversation.id");
  return named ?? trace.laneOfSpan(run.turns[0] ?? run.span)?.session ?? run.id;
}

const modelOf = ({ attributes }: SpanEntry): string =>
  textIn(attributes, "gen_ai.request.model") ?? textIn(attributes, "gen_ai.response.model") ?? "";

/** The tool of each row of a lane: from its pause until the request decodes again; "" of all else. */
function toolsOf(trace: Trace, lane: Lane): string[] {
  const tools: string[] = [];
  let tool = "";
  for (let row = 0; row < lane.length; row++) {
    if (lane.kv[row] === DECODE) tool = "";
    else if (isPause(lane.kv[row]) && (row === 0 || !isPause(lane.kv[row - 1]))) tool = trace.pauseAt(lane.id, lane.at[row])?.tool ?? "";
    tools.push(tool);
  }
  return tools;
}

/** The tokens of a request without spans, by its contexts: how many were cached is not known. */
function tokensOf(lane: Lane, from: number, until: number): Partial<Usage> {
  let [prompt, decoded] = [0, 0];
  let given = true;
  for (let row = 0; row < lane.length; row++) {
    const state = lane.kv[row];
    if (given && isActive(state) && state !== LOADING) {
      if (lane.at[row] >= from && lane.at[row] < until) prompt += lane.tokens[row];
      given = false;
    }
    if (isPause(state)) given = true;
    const next = row + 1 < lane.length ? lane.at[row + 1] : Infinity;
    if (state === DECODE && next >= from && next < until) decoded += Math.max(0, lane.tokens[row + 1] - lane.tokens[row]);
  }
  return { prompt, decoded };
}

function add(sum: Usage, more: Partial<Usage>): void {
  for (const [name, value] of Object.entries(more)) sum[name as keyof Usage] += value;
}

function summed(row: UsageRow): Usage {
  row.whole = { ...row.own };
  for (const child of row.children) add(row.whole, summed(child));
  return row.whole;
}
