// The list of recordings, read again now and then: other servers write into the same file.
import type { Recording } from "../../model/records";
import { type Source, Unauthorised } from "../../sources/source";
import { nameOf } from "../sharing/named";
import { recordings } from "../state";

/** Milliseconds between two looks, and between the first ones after a server has stopped. */
const USUAL = 10_000;
const LOOKS = [1000, 2000, 5000];

/** Keep the list as the source has it; a recording that is known stays the same object. */
export function take(list: readonly Recording[]): void {
  const before = recordings.peek();
  const known = new Map(before.map((one) => [nameOf(one), one]));
  const next = list.map((one) => {
    const old = known.get(nameOf(one));
    return old ? Object.assign(old, one) : one;
  });
  recordings.value = next;
}

/** Looks at the list of a server for as long as the page is open. */
export class Lister {
  private timer: ReturnType<typeof setTimeout> | undefined;
  /** How many quick looks have been made; Infinity: none are needed. */
  private look = Infinity;
  private ended: Recording | null = null;
  private stopped = false;

  constructor(readonly source: Source, private readonly refused: (error: Unauthorised) => void, private readonly changed: () => void) {}

  /** A server has stopped: look more often until it has begun another recording. */
  hurry(ended: Recording): void {
    this.ended = ended;
    this.look = 0;
    take(recordings.peek().map((one) => (nameOf(one) === nameOf(ended) ? { ...one, live: false } : one)));
    this.next();
  }

  /** Look again after a while. */
  next(): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.again(), LOOKS[this.look] ?? (this.ended ? LOOKS[LOOKS.length - 1] : USUAL));
  }

  stop(): void {
    clearTimeout(this.timer);
    this.stopped = true;
  }

  private async again(): Promise<void> {
    this.look += 1;
    try {
      // A page that nobody sees need not ask.
      if (this.ended || typeof document === "undefined" || !document.hidden) {
        const list = await this.source.recordings();
        if (this.stopped) return;
        take(list);
        this.changed();
      }
      if (recordings.peek().some((one) => one.live && one !== this.ended)) this.ended = null;
    } catch (error) {
      if (error instanceof Unauthorised) return this.refused(error);
      // A server that is away is asked again; the list that is shown stays.
    }
    if (!this.stopped) this.next();
  }
}
