// Settings of views that are kept in the address, so that a link shows what its sender saw.
import { computed } from "@preact/signals";
import { route, setQuery } from "./router";

/** A setting in the address's query: reading `value` in a view follows it, as with a signal. */
export interface Param<T extends string = string> {
  value: T;
  /** The value without following it. */
  peek(): T;
}

/** The setting `name`; while it equals `fallback` the address does not have it. */
export function param<T extends string = string>(name: string, fallback: NoInfer<T>): Param<T> {
  // What follows the setting is not made anew when anything else in the address changes.
  const own = computed(() => (route.value.query[name] as T | undefined) ?? fallback);
  return {
    get value(): T {
      return own.value;
    },
    set value(next: T) {
      setQuery({ [name]: next === fallback ? "" : next });
    },
    peek: () => own.peek(),
  };
}

/** A switch of the address, off unless `fallback` says otherwise. */
export function toggle(name: string, fallback = false): { value: boolean; peek(): boolean } {
  const text = param(name, fallback ? "1" : "0");
  return {
    get value(): boolean {
      return text.value === "1";
    },
    set value(on: boolean) {
      text.value = on ? "1" : "0";
    },
    peek: () => text.peek() === "1",
  };
}
