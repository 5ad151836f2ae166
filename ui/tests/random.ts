// Seeded random numbers, so that a sample is the same every time.

/** A source of numbers in [0, 1) (mulberry32). */
export function random(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

/** Exponentially distributed with this mean. */
export const exponential = (next: () => number, mean: number): number => -mean * Math.log(1 - next());

/** Log-normal with this median; `spread` is the standard deviation of the logarithm. */
export function lognormal(next: () => number, median: number, spread: number): number {
  const normal = Math.sqrt(-2 * Math.log(1 - next())) * Math.cos(2 * Math.PI * next());
  return median * Math.exp(spread * normal);
}
