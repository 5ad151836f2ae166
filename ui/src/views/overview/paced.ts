// A value that changes often, at a pace that drawing can keep.
import { useEffect, useRef, useState } from "preact/hooks";

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
