// The engine's deaths: each is told when it is found, and again when it is known what came of it.
import { duration, moment } from "../format";
import type { Interval } from "./busy";
import type { Lane } from "./lane";
import type { Entry, RestartEntry } from "./records";
import type { TimeMap } from "./timemap";

export type RestartState = "down" | "restarted" | "given up";

/** One death of the engine. */
export interface Restart {
  at: number;
  why: string;
  /** Starts of the engine, failed ones too. */
  attempts: number;
  /** Until it took work; null: it has not. */
  seconds: number | null;
  state: RestartState;
  /** The requests that were in the engine. */
  lanes: Lane[];
  /** The server whose engine it was, where there are several. */
  server?: string;
}

/** A time without an engine that took work. */
export interface Outage extends Interval {
  /** The server whose engine it was, where there are several; else "". */
  server: string;
}

/** Records round times; two deaths are never this close, in seconds. */
const CLOSE = 1e-3;

export class Restarts {
  /** In the order in which they were found. */
  readonly all: Restart[] = [];

  /** Take in what is told of a death; return it if it is a new one. */
  take(entry: RestartEntry): Restart | null {
    const known = this.all.find((one) => Math.abs(one.at - entry.at) < CLOSE);
    const told = {
      at: entry.at, why: entry.why || known?.why || "", attempts: entry.attempts ?? 0, seconds: entry.seconds ?? null, state: stateOf(entry),
    };
    if (known) {
      Object.assign(known, told);
      return null;
    }
    const made: Restart = { ...told, lanes: [] };
    this.all.push(made);
    return made;
  }

  /** The times in which there was no engine that took work, in order; one that is down still is until `now`. */
  outages(now: number): Outage[] {
    return this.all
      .map(({ at, seconds }) => ({ from: at, to: seconds === null ? Math.max(at, now) : at + seconds, server: "" }))
      .sort((a, b) => a.from - b.from);
  }

  /** The death that the engine has not come back from; null while it takes work. */
  get down(): Restart | null {
    const last = this.all.at(-1);
    return last && last.state !== "restarted" ? last : null;
  }
}

function stateOf({ state, seconds }: RestartEntry): RestartState {
  if (state === "down" || state === "restarted" || state === "given up") return state;
  return typeof seconds === "number" ? "restarted" : "given up";
}

/** Where the times without an engine lie on the drawn axis, up to `now`. */
export const drawnOutages = (restarts: Restarts, map: TimeMap, now: number): Outage[] =>
  restarts.outages(now).map(({ from, to, server }) => ({ from: map.draw(from), to: map.draw(to), server }));

/** In words. */
export const outageSaid = ({ from, to, server }: Outage): string =>
  `the engine${server ? ` of ${server}` : ""} was dead for ${duration(to - from)}`;

/** What a picture shows of the times without an engine in [t0, t1], for those who do not see it; "" for none. */
export function outagesSaid(restarts: Restarts, t0: number, t1: number): string {
  const shown = restarts.outages(t1).filter(({ from, to }) => to >= t0 && from <= t1);
  return shown.map((one) => `; from ${moment(one.from, 0)} ${outageSaid(one)}`).join("");
}

/** The servers of outages, each once: their names stand below each other. */
export const serversOf = (outages: readonly Outage[]): string[] => [...new Set(outages.map(({ server }) => server))];

/** What is left of intervals where others lie over them. */
export function without(intervals: readonly Interval[], others: readonly Interval[]): Interval[] {
  return others.reduce<Interval[]>((left, other) => left.flatMap(({ from, to }) => {
    if (other.to <= from || other.from >= to) return [{ from, to }];
    return [{ from, to: other.from }, { from: other.to, to }].filter((part) => part.to > part.from);
  }), [...intervals]);
}

/** Requests that go on for others, which were lost with their engine: all that comes of them belongs to those others' lanes. */
export class Survivors {
  private readonly lanes = new Map<string, Lane>();

  get size(): number {
    return this.lanes.size;
  }

  /** `request` is the id that its client knows: the engine's has a suffix. */
  add(request: string, lane: Lane): void {
    this.lanes.set(request, lane);
  }

  /** An entry of such a request, under the lost one's ids; `byRequest` gets the engine's id of it. */
  renamed(entry: Entry, byRequest: Map<string, Lane>): Entry {
    if (entry.kind === "continued" || !("request" in entry)) return entry;
    if (entry.kind === "lanes") {
      const lanes = entry.request.map((id) => this.laneOf(id, byRequest));
      return lanes.some(Boolean) ? { ...entry, request: entry.request.map((id, place) => lanes[place]?.id ?? id) } : entry;
    }
    const lane = this.laneOf(entry.request, byRequest);
    if (!lane) return entry;
    const renamed = { ...entry, request: lane.id } as Entry;
    return "session" in renamed ? { ...renamed, session: lane.session } : renamed;
  }

  private laneOf(request: string, byRequest: Map<string, Lane>): Lane | undefined {
    const lane = this.lanes.get(request) ?? this.lanes.get(request.slice(0, Math.max(0, request.lastIndexOf("-"))));
    if (lane) byRequest.set(request, lane);
    return lane;
  }
}
