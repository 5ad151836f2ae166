// How often what changes is drawn: at once where that is cheap, more rarely the longer it takes.

/** Drawing takes this share of the time at most; the rest is the reader's: scrolling, dragging, typing. */
const SHARE = 0.2;

/** Draws when it is asked to, or a while later, and measures what that costs. */
export class Pace {
  private readonly draw: () => void;
  private readonly now: () => number;
  private timer: ReturnType<typeof setTimeout> | null = null;
  private next = -Infinity;

  /** `now` tells milliseconds. */
  constructor(draw: () => void, now: () => number = () => performance.now()) {
    this.draw = draw;
    this.now = now;
  }

  /** Something has changed: draw it now, or with whatever else changes before it is time. */
  ask(): void {
    if (this.timer !== null) return;
    const wait = this.next - this.now();
    if (wait <= 0) return this.run();
    this.timer = setTimeout(() => {
      this.timer = null;
      this.run();
    }, wait);
  }

  /** Draw nothing that was asked for and not drawn yet. */
  stop(): void {
    if (this.timer !== null) clearTimeout(this.timer);
    this.timer = null;
  }

  private run(): void {
    const began = this.now();
    this.draw();
    // Views render in microtasks that the drawing has queued: this one comes behind them.
    queueMicrotask(() => {
      const cost = this.now() - began;
      this.next = began + cost / SHARE;
    });
  }
}
