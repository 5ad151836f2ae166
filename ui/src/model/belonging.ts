// Which session a request belongs to: its own, until a record says more.
import type { Lane } from "./lane";
import type { Pause } from "./pause";
import type { SessionEntry } from "./records";

/** One session: the lanes of its requests, and the record of its end. */
export interface Session {
  id: string;
  lanes: Lane[];
  end: SessionEntry | null;
}

export class Belonging {
  /** Sessions with lanes or an end, in the order of first appearance. */
  readonly sessions = new Map<string, Session>();
  private readonly byRequest = new Map<string, string>();
  private readonly pauses = new Map<string, Pause[]>();
  private readonly stamps = new Map<string, number>();
  private readonly laneOf: (request: string) => Lane | undefined;
  private readonly pausesBy: (request: string) => readonly Pause[];

  /** `laneOf` and `pausesBy` find what there is of a request so far. */
  constructor(laneOf: (request: string) => Lane | undefined, pausesBy: (request: string) => readonly Pause[]) {
    this.laneOf = laneOf;
    this.pausesBy = pausesBy;
  }

  /** The ids of all sessions, of those too of which there are pauses only. */
  *ids(): Generator<string> {
    yield* this.sessions.keys();
    for (const id of this.pauses.keys()) if (!this.sessions.has(id)) yield id;
  }

  /** The pauses of a session's requests in time order. */
  pausesOf(session: string): readonly Pause[] {
    return this.pauses.get(session) ?? [];
  }

  /** Changes whenever a record of the session comes. */
  stampOf(session: string): number {
    return this.stamps.get(session) ?? 0;
  }

  touch(session: string): void {
    this.stamps.set(session, this.stampOf(session) + 1);
  }

  /** A lane has come. */
  join(lane: Lane): void {
    lane.session = this.of(lane.id);
    this.session(lane.session).lanes.push(lane);
  }

  /** A pause has come. */
  place(pause: Pause): void {
    this.put(this.of(pause.request), pause);
  }

  /** The record of a session's end has come. */
  end(entry: SessionEntry): void {
    this.session(entry.session || entry.request).end = entry;
  }

  /** A record says which session a request belongs to; one without an id says that there is news of it. */
  told(request: string, id: string | undefined): void {
    const before = this.of(request);
    this.touch(id || before);
    if (!id) return;
    this.byRequest.set(request, id);
    if (before !== id) this.movePauses(request, before, id);
    const lane = this.laneOf(request);
    if (lane && lane.session !== id) this.moveLane(lane, id);
  }

  private of(request: string): string {
    return this.byRequest.get(request) ?? request;
  }

  private session(id: string): Session {
    let session = this.sessions.get(id);
    if (!session) this.sessions.set(id, (session = { id, lanes: [], end: null }));
    return session;
  }

  private moveLane(lane: Lane, id: string): void {
    this.touch(lane.session);
    const old = this.sessions.get(lane.session);
    if (old) {
      old.lanes.splice(old.lanes.indexOf(lane), 1);
      if (!old.lanes.length && !old.end) this.sessions.delete(old.id);
    }
    lane.session = id;
    const { lanes } = this.session(id);
    lanes.push(lane);
    lanes.sort((a, b) => a.index - b.index);
  }

  private movePauses(request: string, from: string, to: string): void {
    const own = this.pausesBy(request);
    if (!own.length) return;
    this.touch(from);
    const rest = this.pausesOf(from).filter((pause) => pause.request !== request);
    if (rest.length) this.pauses.set(from, rest);
    else this.pauses.delete(from);
    for (const pause of own) this.put(to, pause);
  }

  private put(session: string, pause: Pause): void {
    const known = this.pauses.get(session);
    if (known) insert(known, pause, (one) => one.at);
    else this.pauses.set(session, [pause]);
  }
}

/** Put `item` where its time belongs, which nearly always is the end. */
export function insert<T>(list: T[], item: T, time: (one: T) => number): void {
  const at = time(item);
  let place = list.length;
  while (place > 0 && time(list[place - 1]) > at) place -= 1;
  list.splice(place, 0, item);
}
