// Axes of our own small charts: where a value lies, and at which values ticks stand.

/** Where a value lies on an axis, and which ticks the axis has. */
export interface Scale {
  place(value: number): number;
  ticks: number[];
}

/** Return a logarithmic scale from `low` to `high` onto [from, to]; both ends are positive. */
export function logScale(low: number, high: number, from: number, to: number): Scale {
  const bottom = Math.log10(low);
  const span = Math.log10(high) - bottom || 1;
  return {
    place: (value) => from + ((Math.log10(value) - bottom) / span) * (to - from),
    ticks: logTicks(low, high),
  };
}

/** Return a linear scale from 0 to at least `high` onto [from, to], with round ticks. */
export function linearScale(high: number, from: number, to: number, most = 4): Scale {
  const step = roundStep(high / most);
  const top = Math.max(step, Math.ceil(high / step - 1e-9) * step);
  const ticks = Array.from({ length: Math.round(top / step) + 1 }, (_, at) => at * step);
  return { place: (value) => from + (value / top) * (to - from), ticks };
}

/** Return the powers of ten in [low, high], eight at most; where there are few, 2 and 5 times them too. */
export function logTicks(low: number, high: number): number[] {
  const first = Math.ceil(Math.log10(low) - 1e-9);
  const last = Math.floor(Math.log10(high) + 1e-9);
  const step = Math.max(1, Math.ceil((last - first + 1) / 8));
  const times = last - first < 2 ? [1, 2, 5] : [1];
  const ticks: number[] = [];
  for (let power = times.length > 1 ? first - 1 : first; power <= last; power += step) {
    for (const each of times) {
      const tick = each * 10 ** power;
      if (tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9)) ticks.push(tick);
    }
  }
  return ticks.length > 1 ? ticks : roundTicks(low, high);
}

/** Multiples of a round step in [low, high]. */
function roundTicks(low: number, high: number): number[] {
  const step = roundStep((high - low) / 3);
  const first = Math.ceil(low / step - 1e-9);
  const count = Math.floor(high / step + 1e-9) - first + 1;
  return Array.from({ length: Math.max(0, count) }, (_, at) => (first + at) * step);
}

/** A tick of a logarithmic axis in seconds: 20 ms, 1 s, 1000 s. */
export function secondsTick(seconds: number): string {
  if (seconds < 0.9e-3) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 0.9) return `${Math.round(seconds * 1e3)} ms`;
  return `${Number(seconds.toPrecision(3))} s`;
}

/** Return the least of 1, 2, 5 times a power of ten that is not under `least`. */
export function roundStep(least: number): number {
  if (!(least > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(least));
  const times = [1, 2, 5, 10].find((each) => each * power >= least * (1 - 1e-9)) ?? 10;
  return times * power;
}
