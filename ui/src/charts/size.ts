// How large an element is drawn, followed as the page changes its size.
import type { RefObject } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

interface Size {
  width: number;
  height: number;
}

/** Return a reference for an element and its size in CSS pixels; 0 until it is measured. */
export function useSize<T extends HTMLElement>(): [RefObject<T | null>, Size] {
  const element = useRef<T>(null);
  const [size, setSize] = useState<Size>({ width: 0, height: 0 });
  useLayoutEffect(() => {
    const found = element.current;
    if (!found) return;
    const measure = (): void => {
      const { clientWidth: width, clientHeight: height } = found;
      setSize((old) => (old.width === width && old.height === height ? old : { width, height }));
    };
    measure();
    if (typeof ResizeObserver === "undefined") return;
    const observer = new ResizeObserver(measure);
    observer.observe(found);
    return () => observer.disconnect();
  }, []);
  return [element, size];
}
