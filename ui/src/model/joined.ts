// Several recordings as one: requests, runs and sessions of all. What is an engine's stays with each.
import type { Session } from "./belonging";
import type { Lane } from "./lane";
import { markOf, marked, markedId } from "./marks";
import type { Pause } from "./pause";
import type { Entry, SpanEntry, WaitEntry } from "./records";
import { type Outage, Restarts } from "./restarts";
import { type Run, Spans } from "./spans";
import { Trace } from "./trace";

/** One of the recordings: its ids have `mark` before them, and its server is called `server`. */
export class Part extends Trace {
  /** The end of a recording to which nothing more comes; Infinity while it is made. */
  override cut = Infinity;

  constructor(readonly mark: string, override readonly server: string) {
    super();
  }

  override add(entries: readonly Entry[]): void {
    // What is no sound entry is counted by the door, as it came.
    super.add(entries.map((entry) => {
      try {
        return marked(entry, this.mark);
      } catch {
        return entry;
      }
    }));
  }

  /** Nothing more comes: what goes on was cut off with its server. */
  close(): void {
    this.cut = this.to;
    this.cutOff();
  }
}

/** The union. It has no steps of its own: block counts and step times of several engines are never added up. */
export class Joined extends Trace {
  override readonly byRequest: Map<string, Lane>;
  override readonly sessions: ReadonlyMap<string, Session>;
  override readonly spans: JoinedSpans;
  override readonly restarts: JoinedRestarts;
  private readonly byMark: Map<string, Part>;
  private readonly seen: Map<Part, Seen>;

  constructor(private readonly joined: readonly Part[]) {
    super();
    const parts = joined;
    this.byMark = new Map(parts.map((part) => [part.mark, part]));
    this.byRequest = new Map();
    this.sessions = new Union(parts, (id) => this.byMark.get(markOf(id)));
    this.spans = new JoinedSpans(parts, (id) => this.partOf(id));
    this.restarts = new JoinedRestarts(parts);
    this.seen = new Map(parts.map((part) => [part, { version: 0, lanes: 0, pauses: new Set(), gaps: 0, http: 0 }]));
  }

  override get parts(): readonly Part[] {
    return this.joined;
  }

  /** Take in what has come to the parts. */
  refresh(): void {
    for (const part of this.parts) this.takeFrom(part, this.seen.get(part)!);
    const sum = (of: (part: Part) => number): number => this.parts.reduce((all, part) => all + of(part), 0);
    this.from = this.parts.reduce((first, part) => Math.min(first, part.from), Infinity);
    this.to = this.parts.reduce((last, part) => Math.max(last, part.to), -Infinity);
    this.intervals = sum((part) => part.intervals);
    this.broken = sum((part) => part.broken);
    this.spans.refresh();
    this.restarts.refresh();
    this.version += 1;
  }

  private takeFrom(part: Part, seen: Seen): void {
    // Most parts have ended: nothing of them is gone through again.
    if (seen.version === part.version) return;
    seen.version = part.version;
    merge(this.lanes, part.lanes.slice(seen.lanes), (one) => one.start);
    seen.lanes = part.lanes.length;
    for (const [id, lane] of part.byRequest) if (!this.byRequest.has(id)) this.byRequest.set(id, lane);
    if (seen.pauses.size < part.pauses.length) {
      const fresh = part.pauses.filter((pause) => !seen.pauses.has(pause));
      for (const pause of fresh) seen.pauses.add(pause);
      merge(this.pauses, fresh, (one) => one.at);
    }
    for (; seen.gaps < part.gaps.length; seen.gaps++) this.gaps.push(part.gaps[seen.gaps]);
    merge(this.http, part.http.slice(seen.http), (one) => one.at);
    seen.http = part.http.length;
    for (const tool of part.tools) this.tools.add(tool);
    for (const { from, to } of part.busy.all()) this.busy.add(from, to);
  }

  override partOf(id: string): Trace {
    return this.byMark.get(markOf(id)) ?? this.parts.find((part) => part.laneOf(markedId(part.mark, id))) ?? this.parts[0];
  }

  override get open(): boolean {
    return this.parts.some((part) => part.cut === Infinity && part.open);
  }

  override get active(): boolean {
    return this.parts.some((part) => part.cut === Infinity && part.active);
  }

  override pausesOf(request: string): readonly Pause[] {
    return this.partOf(request).pausesOf(request);
  }

  override pausesOfSession(session: string): readonly Pause[] {
    return this.partOf(session).pausesOfSession(session);
  }

  override *sessionIds(): Generator<string> {
    for (const part of this.parts) yield* part.sessionIds();
  }

  override stampOf(session: string): number {
    return this.partOf(session).stampOf(session);
  }

  override waitsOf(request: string): readonly WaitEntry[] {
    return this.partOf(request).waitsOf(request);
  }

  /** Also by an id without a mark, as a client has it: the first recording's that has it. */
  override laneOf(id: string): Lane | undefined {
    const own = this.byMark.get(markOf(id))?.laneOf(id);
    if (own) return own;
    for (const part of this.parts) {
      const lane = part.laneOf(markedId(part.mark, id));
      if (lane) return lane;
    }
    return undefined;
  }
}

/** Put `fresh` among what is sorted by time already. */
function merge<T>(list: T[], fresh: readonly T[], time: (one: T) => number): void {
  if (!fresh.length) return;
  const inOrder = list.length === 0 || time(fresh[0]) >= time(list[list.length - 1]);
  for (const one of fresh) list.push(one);
  if (!inOrder || fresh.length > 1) list.sort((a, b) => time(a) - time(b));
}

/** How much of a part has been taken in. */
interface Seen {
  version: number;
  lanes: number;
  pauses: Set<Pause>;
  gaps: number;
  http: number;
}

/** The trees of spans: a run is looked for in its own recording, which its trace's mark names. */
class JoinedSpans extends Spans {
  private readonly taken = new Map<Trace, number>();

  constructor(private readonly parts: readonly Part[], private readonly partOf: (id: string) => Trace) {
    super();
  }

  refresh(): void {
    for (const part of this.parts) {
      merge(this.runs, part.runs.slice(this.taken.get(part) ?? 0), (run) => run.span.start);
      this.taken.set(part, part.runs.length);
    }
  }

  override run(id: string): Run | undefined {
    return this.partOf(id).spans.run(id);
  }

  override turnOf(request: string): SpanEntry | undefined {
    return this.partOf(request).spans.turnOf(request);
  }

  override runOfRequest(request: string): Run | undefined {
    return this.partOf(request).spans.runOfRequest(request);
  }

  override parentOf(run: Run): Run | undefined {
    return this.partOf(run.id).spans.parentOf(run);
  }

  override runOf(span: SpanEntry): Run | undefined {
    return this.partOf(span.trace).spans.runOf(span);
  }
}

/** The deaths of all engines. None of them is an outage of all: each has its server's name. */
class JoinedRestarts extends Restarts {
  constructor(private readonly parts: readonly Part[]) {
    super();
  }

  refresh(): void {
    const all = this.parts.flatMap((part) => part.restarts.all.map((one) => Object.assign(one, { server: part.server })));
    this.all.splice(0, this.all.length, ...all.sort((a, b) => a.at - b.at));
  }

  override outages(now: number): Outage[] {
    return this.parts
      .flatMap((part) => part.restarts.outages(Math.min(now, part.cut)).map((one) => ({ ...one, server: part.server })))
      .sort((a, b) => a.from - b.from);
  }

  override get down(): null {
    return null;
  }
}

/** The sessions of all parts, by their marked ids. */
class Union implements ReadonlyMap<string, Session> {
  constructor(private readonly parts: readonly Part[], private readonly partOf: (id: string) => Part | undefined) {}

  get size(): number {
    return this.parts.reduce((sum, part) => sum + part.sessions.size, 0);
  }

  get(id: string): Session | undefined {
    return this.partOf(id)?.sessions.get(id);
  }

  has(id: string): boolean {
    return this.get(id) !== undefined;
  }

  forEach(use: (value: Session, key: string, map: ReadonlyMap<string, Session>) => void): void {
    for (const [key, value] of this) use(value, key, this);
  }

  *entries(): MapIterator<[string, Session]> {
    for (const part of this.parts) yield* part.sessions.entries();
  }

  *keys(): MapIterator<string> {
    for (const part of this.parts) yield* part.sessions.keys();
  }

  *values(): MapIterator<Session> {
    for (const part of this.parts) yield* part.sessions.values();
  }

  [Symbol.iterator](): MapIterator<[string, Session]> {
    return this.entries();
  }
}
