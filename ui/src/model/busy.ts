// The union of the intervals in which any request was queued, computed or copied.
import { grown } from "./columns";

export interface Interval {
  from: number;
  to: number;
}

export class Busy {
  /** Disjoint intervals in time order. */
  length = 0;
  private from = new Float64Array(64);
  private to = new Float64Array(64);

  /** Unite with [from, to], which nearly always ends later than all before it. */
  add(from: number, to: number): void {
    let place = this.length;
    while (place > 0 && this.from[place - 1] > to) place -= 1;
    let first = place;
    while (first > 0 && this.to[first - 1] >= from) {
      first -= 1;
      from = Math.min(from, this.from[first]);
      to = Math.max(to, this.to[first]);
    }
    this.replace(first, place, from, to);
  }

  /** The idle times longer than `seconds` between the busy ones. */
  idle(seconds: number): Interval[] {
    const idle: Interval[] = [];
    for (let i = 1; i < this.length; i++) {
      if (this.from[i] - this.to[i - 1] > seconds) idle.push({ from: this.to[i - 1], to: this.from[i] });
    }
    return idle;
  }

  /** The busy times, in order. */
  *all(): Generator<Interval> {
    for (let i = 0; i < this.length; i++) yield { from: this.from[i], to: this.to[i] };
  }

  /** The busy seconds between `from` and `to`. */
  within(from: number, to: number): number {
    let sum = 0;
    for (let i = 0; i < this.length && this.from[i] < to; i++) {
      sum += Math.max(0, Math.min(this.to[i], to) - Math.max(this.from[i], from));
    }
    return sum;
  }

  private replace(first: number, behind: number, from: number, to: number): void {
    const length = this.length - (behind - first) + 1;
    this.from = grown(this.from, length);
    this.to = grown(this.to, length);
    this.from.copyWithin(first + 1, behind, this.length);
    this.to.copyWithin(first + 1, behind, this.length);
    this.from[first] = from;
    this.to[first] = to;
    this.length = length;
  }
}
