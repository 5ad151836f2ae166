// A value that changes often, at a pace that drawing can keep.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

/** Return `value`, at most once in so many milliseconds; what came last is never left out. */
export function usePaced<T>(value: T, milliseconds: number): T {
  const [paced, setPaced] = useState(value);
  const taken = useRef(0);
  useEffect(() => {
    const wait = Math.max(0, taken.current + milliseconds - performance.now());
    const timer = setTimeout(() => {
      taken.current = performance.now();
      setPaced(value);
    }, wait);
    return () => clearTimeout(timer);
  }, [value]);
  return paced;
}

/** What is made of a value and drawn takes one part in so many of the time at most. */
const SHARE = 10;

/** Return `value`, at most once in `least` milliseconds, and less often where what a view makes of it takes long. */
export function useMeasured<T>(value: T, least: number): T {
  const took = useRef(0);
  const began = performance.now();
  const paced = usePaced(value, Math.max(least, SHARE * took.current));
  // When this runs all parts of the view have been drawn.
  useLayoutEffect(() => {
    took.current = performance.now() - began;
  }, [paced]);
  return paced;
}
