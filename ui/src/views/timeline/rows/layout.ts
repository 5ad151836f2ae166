// How the shown requests are put into rows: one each, several in one, or all summed up.
import type { Lane } from "../../../model/lane";

/** How rows may be made; `fit` chooses by how many there are. */
export const LAYOUTS = ["fit", "each", "dense", "packed", "summed"] as const;
export type Wanted = (typeof LAYOUTS)[number];

/** Heights of a row in pixels: to read, and to see many. */
const HEIGHTS = { readable: 22, dense: 9 } as const;

/** One line of the timeline: lanes that follow one another in time. */
export interface LaneRow {
  lanes: readonly Lane[];
  /** Its place among the shown lanes of its session, and how many those are. */
  place: number;
  of: number;
}

export interface Layout {
  kind: "each" | "packed" | "summed";
  rows: LaneRow[];
  rowHeight: number;
}

/** What there is to draw on, in pixels, and how many of the lanes are in sight. */
export interface Space {
  height: number;
  width: number;
  here: number;
}

/** A request of a packed row is drawn if there are so many pixels for it on average: more can be read off sums. */
const LEAST_WIDTH = 12;

/** Put lanes into rows; `sorted`: they are in another order than that of arrival. `pack` may know the packed rows. */
export function layoutOf(
  lanes: readonly Lane[], wanted: Wanted, space: Space, sorted: boolean, pack: () => LaneRow[] = () => packed(lanes),
): Layout {
  const { height: room } = space;
  const each = (rowHeight: number): Layout => ({ kind: "each", rowHeight, rows: sorted ? alone(lanes) : grouped(lanes) });
  if (wanted === "summed") return summed;
  if (wanted === "each") return each(HEIGHTS.readable);
  if (wanted === "dense") return each(HEIGHTS.dense);
  // A packed row has many requests, which is no order of sizes.
  if (sorted || (wanted === "fit" && (room <= 0 || lanes.length * HEIGHTS.readable <= room))) return each(HEIGHTS.readable);
  const rows = pack();
  if (wanted === "fit" && (rows.length > room || space.here * LEAST_WIDTH > rows.length * space.width)) return summed;
  return { kind: "packed", rows, rowHeight: Math.min(HEIGHTS.readable, Math.max(HEIGHTS.dense, Math.floor(room / rows.length))) };
}

const summed: Layout = { kind: "summed", rows: [], rowHeight: HEIGHTS.readable };
const alone = (lanes: readonly Lane[]): LaneRow[] => lanes.map((lane) => ({ lanes: [lane], place: 0, of: 1 }));

/** A row each, the requests of one session beneath its first. */
function grouped(lanes: readonly Lane[]): LaneRow[] {
  const sessions = new Map<string, Lane[]>();
  for (const lane of lanes) {
    const own = sessions.get(lane.session);
    if (own) own.push(lane);
    else sessions.set(lane.session, [lane]);
  }
  const rows: LaneRow[] = [];
  for (const own of sessions.values()) own.forEach((lane, place) => rows.push({ lanes: [lane], place, of: own.length }));
  return rows;
}

/** As few rows as there were requests at once; each request takes the first row that is free when it arrives. */
export const packed = (lanes: readonly Lane[]): LaneRow[] => new Packing().of(lanes);

/**
 * Rows that go on where they ended: of a live recording, only requests that are new are placed. Those
 * that were placed stay, since who was here when they arrived does not change.
 */
export class Packing {
  /** How many requests were given a row so far, those anew included that had one. */
  placed = 0;
  private lanes: Lane[] = [];
  private ends: (number | null)[] = [];
  private rows: Lane[][] = [];
  private taken = new Heap<Place>(byEnd);
  private free = new Heap<number>((a, b) => a - b);
  /** Requests in rows whose ends were not known when they were placed. */
  private open: Place[] = [];

  of(wanted: readonly Lane[]): LaneRow[] {
    const sorted = isSorted(wanted) ? wanted : [...wanted].sort(byArrival);
    if (!this.goesOn(sorted)) this.begin();
    this.settle();
    for (let i = this.lanes.length; i < sorted.length; i++) this.place(sorted[i]);
    return this.rows.map((lanes) => ({ lanes, place: 0, of: 1 }));
  }

  private begin(): void {
    this.lanes = [];
    this.ends = [];
    this.rows = [];
    this.taken = new Heap<Place>(byEnd);
    this.free = new Heap<number>((a, b) => a - b);
    this.open = [];
  }

  /** Whether all that was placed comes first, in the same order, and nothing that had ended goes on. */
  private goesOn(sorted: readonly Lane[]): boolean {
    return this.lanes.length <= sorted.length
      && this.lanes.every((lane, i) => lane === sorted[i] && (this.ends[i] === null || this.ends[i] === lane.end));
  }

  /** What has ended since gives its row back when it ended. */
  private settle(): void {
    for (let i = 0; i < this.lanes.length; i++) this.ends[i] ??= this.lanes[i].end;
    this.open = this.open.filter((place) => {
      if (place.lane.left === Infinity) return true;
      this.taken.push({ ...place, end: place.lane.left });
      return false;
    });
  }

  private place(lane: Lane): void {
    this.placed += 1;
    while (this.taken.first && this.taken.first.end <= lane.start) this.free.push(this.taken.pop().row);
    const row = this.free.first === undefined ? this.rows.push([]) - 1 : this.free.pop();
    this.rows[row].push(lane);
    this.lanes.push(lane);
    this.ends.push(lane.end);
    const place = { lane, row, end: lane.left };
    if (lane.left === Infinity) this.open.push(place);
    else this.taken.push(place);
  }
}

interface Place {
  lane: Lane;
  row: number;
  end: number;
}

const byEnd = (a: Place, b: Place): number => a.end - b.end;
const byArrival = (a: Lane, b: Lane): number => a.start - b.start || a.index - b.index;
const isSorted = (lanes: readonly Lane[]): boolean => lanes.every((lane, i) => i === 0 || byArrival(lanes[i - 1], lane) <= 0);

/** The lanes of a row within [from, to]: the first, and the one behind the last. */
export function within(row: LaneRow, from: number, to: number): [first: number, behind: number] {
  const { lanes } = row;
  if (lanes.length === 1) return [0, 1];
  let first = place(lanes, from);
  if (first > 0) first -= 1; // it may reach into the stretch
  return [first, place(lanes, to)];
}

/** How many lanes begin before `time`. */
function place(lanes: readonly Lane[], time: number): number {
  let low = 0;
  let high = lanes.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (lanes[middle].start < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** A binary heap: its first item is the least. */
class Heap<T> {
  private readonly items: T[] = [];
  private readonly order: (a: T, b: T) => number;

  constructor(order: (a: T, b: T) => number) {
    this.order = order;
  }

  get first(): T | undefined {
    return this.items[0];
  }

  push(item: T): void {
    const { items } = this;
    let at = items.push(item) - 1;
    for (; at > 0; ) {
      const above = (at - 1) >> 1;
      if (this.order(items[above], items[at]) <= 0) break;
      [items[above], items[at]] = [items[at], items[above]];
      at = above;
    }
  }

  /** Take out the first item; there must be one. */
  pop(): T {
    const { items } = this;
    const first = items[0];
    const last = items.pop() as T;
    if (items.length) {
      items[0] = last;
      this.sink();
    }
    return first;
  }

  private sink(): void {
    const { items } = this;
    for (let at = 0; ; ) {
      let least = at;
      for (const below of [2 * at + 1, 2 * at + 2]) {
        if (below < items.length && this.order(items[below], items[least]) < 0) least = below;
      }
      if (least === at) return;
      [items[at], items[least]] = [items[least], items[at]];
      at = least;
    }
  }
}
