// Where the time axis has its marks and what stands at them.
import { duration, isWallClock, moment } from "../../format";
import type { Scale } from "../../model/timemap";

export interface Tick {
  x: number;
  /** The time of day, or "" where times are not Unix times. */
  clock: string;
  /** Since the origin. */
  since: string;
}

const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];

/** A step of at least `seconds` that people count in. */
export function niceStep(seconds: number): number {
  if (seconds > 1) return STEPS.find((step) => step >= seconds) ?? Math.ceil(seconds / 604800) * 604800;
  const power = 10 ** Math.floor(Math.log10(seconds));
  const factor = [1, 2, 5, 10].find((one) => one * power >= seconds * 0.999) ?? 10;
  return factor * power;
}

/** What times are told from: the second in which a recording begins, so that whole seconds are the clock's; a simulation's 0. */
export const originOf = (from: number): number => (isWallClock(from) ? Math.floor(from) : 0);

/** A stretch has no more ticks than this, however wild the times are that it lies between. */
const MOST = 1000;

/** Ticks about `spacing` pixels apart; none inside of folds. `origin` is the time that they are told from. */
export function ticks(scale: Scale, origin: number, spacing = 110): Tick[] {
  const step = niceStep(scale.secondsPerPixel * spacing);
  const found: Tick[] = [];
  // A trace without entries begins nowhere, and no count leads there.
  if (!Number.isFinite(origin)) return found;
  let begin = scale.from;
  const folds = scale.map.folds.filter((fold) => fold.to > scale.from && fold.from < scale.to);
  for (const fold of [...folds, { from: scale.to, to: scale.to }]) {
    const first = Math.ceil((begin - origin) / step - 1e-9);
    const behind = Math.min(Math.floor((fold.from - origin) / step), first + MOST);
    for (let i = first; i <= behind; i++) {
      const time = origin + i * step;
      const x = scale.x(time);
      if (found.length && x - found[found.length - 1].x < spacing * 0.6) continue;
      // A little later, since a clock is cut and 0.3 may be a bit less than that.
      const clock = moment(time + step / 1000, digits(step));
      if (isWallClock(origin)) found.push({ x, clock, since: since(i * step, step) });
      else found.push({ x, clock: "", since: step >= 60 ? duration(time) : clock });
    }
    begin = fold.to;
  }
  return found;
}

/** Decimals that tell two ticks apart. */
const digits = (step: number): number => Math.max(0, Math.min(6, Math.ceil(-Math.log10(step) - 1e-9)));

function since(seconds: number, step: number): string {
  if (Math.abs(seconds) < step / 2) return "0";
  const sign = seconds < 0 ? "−" : "+";
  const size = Math.abs(seconds);
  if (step >= 1 && size < 60) return `${sign}${Math.round(size)} s`;
  if (step >= 1) return sign + duration(Math.round(size));
  if (size < 1) return `${sign}${(size * 1000).toFixed(Math.max(0, digits(step) - 3))} ms`;
  return `${sign}${size.toFixed(digits(step))} s`;
}
