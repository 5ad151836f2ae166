// Typed arrays that grow, so that a hundred thousand rows stay cheap to keep and to walk.

type Typed = Float64Array | Int32Array | Uint8Array;

/** `old` with room for at least `length` items; the same array if it has it. */
export function grown<T extends Typed>(old: T, length: number): T {
  if (length <= old.length) return old;
  const wider = new (old.constructor as new (n: number) => T)(Math.max(length, old.length * 2, 8));
  wider.set(old as never);
  return wider;
}

/** The first index in `sorted[0..length)` whose value is greater than `value`. */
export function above(sorted: ArrayLike<number>, length: number, value: number): number {
  let low = 0;
  let high = length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (sorted[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}
