// A recording as a fold over its entries: history and live entries take the same way.
import { Belonging, type Session, insert } from "./belonging";
import { Busy } from "./busy";
import { isSound } from "./door";
import { LOST, Lane, type Row, isPause } from "./lane";
import { Pause } from "./pause";
import type {
  ContinuedEntry, Entry, ForecastEntry, GapEntry, HttpEntry, LanesEntry, OpeningEntry, PauseEntry, RestartEntry, SessionEntry, SpanEntry, StepsEntry, WaitEntry,
} from "./records";
import { Outcomes } from "./outcomes";
import { Plans } from "./plans";
import { Restarts, Survivors } from "./restarts";
import { type Run, Spans } from "./spans";
import { Steps } from "./steps";

export type { Session } from "./belonging";

export class Trace {
  /** Counts the batches that were added. */
  version = 0;
  /** In order of first appearance. */
  readonly lanes: Lane[] = [];
  readonly byRequest: ReadonlyMap<string, Lane>;
  readonly sessions: ReadonlyMap<string, Session>;
  /** In time order. */
  readonly pauses: Pause[] = [];
  readonly steps = new Steps();
  readonly waits: WaitEntry[] = [];
  readonly spans = new Spans();
  readonly gaps: GapEntry[] = [];
  /** Requests to the server, by when they were answered, refused or left. */
  readonly http: HttpEntry[] = [];
  /** What was predicted of each segment, and what came. */
  readonly outcomes = new Outcomes();
  /** A planned run of several models, where this is one. */
  readonly plans = new Plans();
  /** The engine's deaths. */
  readonly restarts = new Restarts();
  /** Names of the tools that were called. */
  readonly tools = new Set<string>();
  /** When anything was under way, for folding what is idle. */
  readonly busy = new Busy();
  /** The first and the last time of any entry; Infinity and -Infinity while there is none. */
  from = Infinity;
  to = -Infinity;
  /** Rows of all lanes. */
  intervals = 0;
  /** Entries of known kinds that were not taken, since they break the schema. */
  broken = 0;
  /** The end of a recording to which nothing more comes and of which others go on; else Infinity. */
  readonly cut: number = Infinity;
  /** What the server is called that made it, where there are several. */
  readonly server: string = "";
  private readonly requests = new Map<string, Lane>();
  private readonly pausesBy = new Map<string, Pause[]>();
  private readonly belonging = new Belonging((request) => this.requests.get(request), (request) => this.pausesOf(request));
  /** The lanes that have not ended. */
  private readonly here = new Set<Lane>();
  private readonly waitsBy = new Map<string, WaitEntry[]>();
  private readonly byClient = new Map<string, Lane>();
  private readonly survivors = new Survivors();

  constructor() {
    this.byRequest = this.requests;
    this.sessions = this.belonging.sessions;
  }

  /** Take in more entries, in the order in which they were written. */
  add(entries: readonly Entry[]): void {
    for (const entry of entries) {
      if (isSound(entry)) this.take(entry);
      else this.broken += 1;
    }
    this.steps.settle();
    this.version += 1;
  }

  /** Whether any request is still here. */
  get open(): boolean {
    return this.here.size > 0;
  }

  /** Whether any request is in the queue, computed or copied at the end. */
  get active(): boolean {
    for (const lane of this.here) if (!isPause(lane.state[lane.length - 1])) return true;
    return false;
  }

  /** The recordings that it consists of, each with an engine of its own: itself, or those that were joined. */
  get parts(): readonly Trace[] {
    return [this];
  }

  /** The recording of a request, a session or a run: its steps and its neighbours are there. */
  partOf(_id: string): Trace {
    return this;
  }

  get runs(): Run[] {
    return this.spans.runs;
  }

  get empty(): boolean {
    return this.from > this.to;
  }

  pausesOf(request: string): readonly Pause[] {
    return this.pausesBy.get(request) ?? [];
  }

  /** The pauses of a session's requests in time order. */
  pausesOfSession(session: string): readonly Pause[] {
    return this.belonging.pausesOf(session);
  }

  /** The ids of all sessions, of those too of which there are pauses only. */
  sessionIds(): Iterable<string> {
    return this.belonging.ids();
  }

  /** Changes whenever a record of the session comes: what is made from it is made anew then. */
  stampOf(session: string): number {
    return this.belonging.stampOf(session);
  }

  /** The pause of `request` that began at `at`. */
  pauseAt(request: string, at: number): Pause | undefined {
    return this.pausesOf(request).find((pause) => same(pause.at, at));
  }

  waitsOf(request: string): readonly WaitEntry[] {
    return this.waitsBy.get(request) ?? [];
  }

  /** The wait of `request` that goes on at `time`; none is recorded while it does, or if it was short. */
  waitAt(request: string, time: number): WaitEntry | undefined {
    return this.waitsOf(request).find((wait) => wait.since - 1e-4 <= time && time <= wait.until + 1e-4);
  }

  /** The lane of a request as its client names it: its id, or that and a suffix. */
  laneOf(id: string): Lane | undefined {
    return this.byRequest.get(id) ?? this.byClient.get(id);
  }

  /** The lane that the engine ran a `chat` span in. */
  laneOfSpan(span: SpanEntry): Lane | undefined {
    const id = span.attributes?.["caesura.request.id"];
    return typeof id === "string" ? this.laneOf(id) : undefined;
  }

  private take(told: Entry): void {
    const entry = this.survivors.size ? this.survivors.renamed(told, this.requests) : told;
    switch (entry.kind) {
      case "lanes": return this.takeLanes(entry);
      case "forecast": return this.takeForecast(entry);
      case "opening": return this.takeOpening(entry);
      case "pause": return this.takePause(entry);
      case "session": return this.takeSession(entry);
      case "wait": return this.takeWait(entry);
      case "steps": return this.takeSteps(entry);
      case "span": return this.takeSpan(entry);
      case "http": return this.takeHttp(entry);
      case "restart": return this.takeRestart(entry);
      case "continued": return this.takeContinued(entry);
      case "plan":
      case "stage":
      case "replica":
      case "progress":
        this.plans.take(entry);
        return this.reach(entry.at);
      case "gap":
        this.gaps.push(entry);
        return this.reach(entry.at);
      default:
    }
  }

  /** What goes on stops at the end of the recording. */
  protected cutOff(): void {
    for (const lane of this.here) lane.cut = this.cut;
  }

  private reach(at: number): void {
    if (at < this.from) this.from = at;
    if (at > this.to) this.to = at;
  }

  private takeLanes(entry: LanesEntry): void {
    for (let i = 0; i < entry.request.length; i++) {
      const lane = this.lane(entry.request[i]);
      const at = entry.at[i];
      this.addRow(lane, {
        state: entry.state[i],
        at,
        blocks: entry.blocks?.[i] ?? 0,
        host: entry.host?.[i] ?? 0,
        tokens: entry.tokens?.[i] ?? 0,
      });
    }
  }

  private addRow(lane: Lane, row: Row): void {
    if (lane.add(row)) this.changed(lane, row.at);
  }

  /** A lane has one row more, at `at`. */
  private changed(lane: Lane, at: number): void {
    if (lane.end === null) this.here.add(lane);
    else this.here.delete(lane);
    this.belonging.touch(lane.session);
    this.intervals += 1;
    this.reach(at);
    const before = lane.rowAt(at) - 1;
    const idle = before < 0 || isPause(lane.state[before]) || lane.state[before] === LOST;
    this.busy.add(idle ? at : lane.at[before], at);
  }

  /** An engine's death ends all that was in it, at that time. */
  private takeRestart(entry: RestartEntry): void {
    this.reach(entry.at + (entry.seconds ?? 0));
    const death = this.restarts.take(entry);
    if (!death) return;
    for (const lane of [...this.here]) {
      if (lane.start > death.at) continue; // of the next engine
      lane.lose(death.at);
      death.lanes.push(lane);
      const pause = this.pausesOf(lane.id).at(-1);
      if (pause && !pause.end) pause.lostAt = lane.end;
      this.changed(lane, lane.end!);
    }
    // No step comes of a dead engine, and the last one's blocks are nobody's.
    if (this.steps.length) this.steps.add({ kind: "steps", at: [death.at], seconds: [0] });
  }

  /** What comes of the new request belongs to the lane of the lost one. */
  private takeContinued(entry: ContinuedEntry): void {
    const lane = this.laneOf(entry.lost) ?? this.neverTaken(entry);
    if (!lane) return;
    this.survivors.add(entry.request, lane);
    this.spans.goesOn(lane.id, entry.request);
    this.byClient.set(entry.request, lane);
    if (!lane.lost) return;
    lane.goOn();
    this.here.add(lane);
    const pause = this.pausesOf(lane.id).at(-1);
    if (pause?.outcome === "lost") pause.lostAt = Math.max(entry.at, pause.at);
    this.belonging.touch(lane.session);
    this.intervals += 1;
    this.reach(entry.at);
  }

  /** The lane of a request that no record tells of: the engine was dead, or its last records died with it. */
  private neverTaken({ lost, sent }: ContinuedEntry): Lane | undefined {
    if (typeof sent !== "number") return undefined;
    const lane = this.lane(lost);
    this.addRow(lane, { state: "lost", at: sent, blocks: 0, host: 0, tokens: 0 });
    const death = this.restarts.all.at(-1);
    if (death && sent <= death.at) death.lanes.push(lane);
    return lane;
  }

  private lane(id: string): Lane {
    let lane = this.byRequest.get(id);
    if (lane) return lane;
    lane = new Lane(id, this.lanes.length);
    this.lanes.push(lane);
    this.requests.set(id, lane);
    const dash = id.lastIndexOf("-");
    if (dash > 0) this.byClient.set(id.slice(0, dash), lane);
    this.belonging.join(lane);
    for (const pause of this.pausesOf(id)) this.markPerson(pause);
    return lane;
  }

  private takeForecast(entry: ForecastEntry): void {
    this.belonging.told(entry.request, entry.session);
    this.outcomes.takeForecast(entry);
    this.reach(entry.at);
  }

  private takeOpening(entry: OpeningEntry): void {
    const pause = this.pause(entry.request, entry.at);
    pause.opening = entry;
    if (pause.tool) this.tools.add(pause.tool);
    this.belonging.told(entry.request, entry.session);
    this.markPerson(pause);
    this.reach(entry.at);
  }

  private takePause(entry: PauseEntry): void {
    const pause = this.pause(entry.request, entry.at);
    pause.end = entry;
    if (pause.tool) this.tools.add(pause.tool);
    this.belonging.told(entry.request, entry.session);
    this.markPerson(pause);
    this.outcomes.takePause(entry);
    this.reach(entry.at + (entry.pause_seconds ?? 0));
  }

  private markPerson(pause: Pause): void {
    if (!pause.person) return;
    const until = pause.seconds === null ? Infinity : pause.at + pause.seconds;
    this.byRequest.get(pause.request)?.waitsForPerson(pause.at, until);
  }

  private pause(request: string, at: number): Pause {
    const known = this.pauseAt(request, at);
    if (known) return known;
    const pause = new Pause(request, at);
    insert(this.pauses, pause, (one) => one.at);
    const own = this.pausesBy.get(request);
    if (own) insert(own, pause, (one) => one.at);
    else this.pausesBy.set(request, [pause]);
    this.belonging.place(pause);
    return pause;
  }

  private takeSession(entry: SessionEntry): void {
    this.belonging.told(entry.request, entry.session);
    this.belonging.end(entry);
    this.outcomes.takeSession(entry);
    this.reach(entry.at);
  }

  private takeWait(entry: WaitEntry): void {
    this.waits.push(entry);
    const own = this.waitsBy.get(entry.request);
    if (own) own.push(entry);
    else this.waitsBy.set(entry.request, [entry]);
    this.reach(entry.until);
  }

  private takeSteps(entry: StepsEntry): void {
    this.steps.add(entry);
    if (!entry.at?.length) return;
    this.reach(entry.at[0]);
    this.reach(entry.at[entry.at.length - 1]);
  }

  private takeHttp(entry: HttpEntry): void {
    this.http.push(entry);
    this.reach(entry.at);
  }

  private takeSpan(entry: SpanEntry): void {
    this.spans.add(entry);
    const tool = entry.attributes?.["gen_ai.tool.name"];
    if (typeof tool === "string") this.tools.add(tool);
    this.reach(entry.start);
    if (entry.end !== null && entry.end !== undefined) this.reach(entry.end);
  }
}

const same = (a: number, b: number): boolean => Math.abs(a - b) < 1e-4;
