// One request's states in time order: row i holds from at[i] until at[i + 1].
import { above, grown } from "./columns";

/** The states that the page tells apart; a row's state is an index into this list. */
export const STATES = [
  "waiting", "loading", "prefill", "recompute", "decode",
  "paused", "offloaded", "dropped", "person", "ended", "lost",
] as const;
export type State = (typeof STATES)[number];

export const WAITING = 0, LOADING = 1, PREFILL = 2, RECOMPUTE = 3, DECODE = 4;
export const PAUSED = 5, OFFLOADED = 6, DROPPED = 7, PERSON = 8, ENDED = 9;
/** The engine died: no record says it, the page makes these rows (`lose`). */
export const LOST = 10;
const CODES = new Map<string, number>(STATES.map((name, code) => [name, code]));

/** Whether a row of this state waits for a tool or a person. */
export const isPause = (code: number): boolean => code >= PAUSED && code <= PERSON;
/** Whether a row of this state takes part in steps or in copying. */
export const isActive = (code: number): boolean => code >= LOADING && code <= DECODE;

export interface Row {
  state: string;
  at: number;
  blocks: number;
  host: number;
  tokens: number;
}

export class Lane {
  readonly id: string;
  /** In the order of first appearance. */
  readonly index: number;
  /** The session's id; the request's own until a record says more. */
  session: string;
  length = 0;
  at = new Float64Array(8);
  /** What the page shows: `person` hides the state of the KV cache, which stays in `kv`. */
  state = new Uint8Array(8);
  kv = new Uint8Array(8);
  blocks = new Int32Array(8);
  host = new Int32Array(8);
  tokens = new Int32Array(8);
  /** When it ended; null while it goes on. */
  end: number | null = null;
  /** When its recording ended under it, while others went on; else Infinity. */
  cut = Infinity;
  private mask = 0;
  private persons: { from: number; until: number }[] = [];

  constructor(id: string, index: number) {
    this.id = id;
    this.index = index;
    this.session = id;
  }

  /** Until when it was here; Infinity: it still is. */
  get left(): number {
    return this.end ?? this.cut;
  }

  get start(): number {
    return this.at[0];
  }

  /** Append a row, or put it where its time belongs; a state that is not known is left out. */
  add(row: Row): boolean {
    const code = CODES.get(row.state);
    if (code === undefined || !Number.isFinite(row.at)) return false;
    this.reserve(this.length + 1);
    const place = above(this.at, this.length, row.at);
    if (place < this.length) this.shift(place);
    this.at[place] = row.at;
    this.kv[place] = code;
    this.blocks[place] = row.blocks;
    this.host[place] = row.host;
    this.tokens[place] = row.tokens;
    this.length += 1;
    this.show(place);
    if (code === ENDED) this.end = row.at;
    else if (place > 0 && place === this.length - 1 && this.kv[place - 1] === LOST) this.end = null;
    return true;
  }

  /** Its engine died at `at`: it ends there, unless it goes on in the next one. */
  lose(at: number): void {
    const last = this.length - 1;
    this.add({ state: "lost", at: Math.max(at, this.at[last]), blocks: 0, host: 0, tokens: this.tokens[last] });
    this.end = this.at[this.length - 1];
  }

  /** It goes on in the next engine. One that was paused waited for its tool meanwhile, without its KV. */
  goOn(): void {
    const last = this.length - 1;
    this.end = null;
    if (last > 0 && this.kv[last] === LOST && isPause(this.kv[last - 1])) {
      this.kv[last] = DROPPED;
      this.show(last);
    }
  }

  /** Whether its engine died under it, and it did not go on. */
  get lost(): boolean {
    return this.end !== null && this.kv[this.length - 1] === LOST;
  }

  /** Whether it has ever been in the state. */
  seen(code: number): boolean {
    return (this.mask & (1 << code)) !== 0;
  }

  /** The row that holds at `time`; -1 before the first. */
  rowAt(time: number): number {
    return above(this.at, this.length, time) - 1;
  }

  /** When row `i` ends; `now` for the last row of a lane that goes on. */
  until(i: number, now: number): number {
    if (i + 1 < this.length) return this.at[i + 1];
    return this.end !== null ? this.at[i] : Math.max(Math.min(now, this.cut), this.at[i]);
  }

  /** The pause that began at `from` waits for a person, until `until` (Infinity: not known yet). */
  waitsForPerson(from: number, until: number): void {
    const known = this.persons.find((person) => person.from === from);
    if (known) known.until = until;
    else this.persons.push({ from, until });
    for (let i = Math.max(0, this.rowAt(from - CLOSE)); i < this.length; i++) this.show(i);
  }

  private show(i: number): void {
    const code = this.kv[i];
    const at = this.at[i];
    const person = code >= PAUSED && code <= DROPPED && this.persons.some(
      (one) => at >= one.from - CLOSE && at < one.until + CLOSE,
    );
    this.state[i] = person ? PERSON : code;
    this.mask |= 1 << this.state[i];
  }

  private reserve(length: number): void {
    this.at = grown(this.at, length);
    this.state = grown(this.state, length);
    this.kv = grown(this.kv, length);
    this.blocks = grown(this.blocks, length);
    this.host = grown(this.host, length);
    this.tokens = grown(this.tokens, length);
  }

  private shift(place: number): void {
    for (const column of [this.at, this.state, this.kv, this.blocks, this.host, this.tokens]) {
      column.copyWithin(place + 1, place, this.length);
    }
  }
}

/** Clocks of records differ by rounding; two times this close are the same, in seconds. */
const CLOSE = 1e-4;
