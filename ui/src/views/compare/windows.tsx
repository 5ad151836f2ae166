// Two windows of one recording, or one of each of two, in figures.
import { useMemo } from "preact/hooks";
import { param } from "../../app/address";
import { type Loaded, type Window, timeWindow } from "../../app/state";
import { duration, moment } from "../../format";
import type { Trace } from "../../model/trace";
import { Headline } from "./headline";
import { measure } from "./metrics";

const first = param("cmp.wa", "");
const second = param("cmp.wb", "");

/** A window as the address has it, "T0_T1"; null where it has none. */
export function windowIn(text: string): Window | null {
  const [t0, t1] = text.split("_").map(Number.parseFloat);
  return t1 > t0 ? { t0, t1 } : null;
}

const written = ({ t0, t1 }: Window): string => `${t0.toFixed(3)}_${t1.toFixed(3)}`;

/** The half of a recording that stands in for a window that nobody has chosen. */
export function half(trace: Trace, later: boolean): Window {
  const middle = (trace.from + trace.to) / 2;
  return later ? { t0: middle, t1: trace.to + 1e-3 } : { t0: trace.from, t1: middle };
}

export function Windows({ a, b, version }: { a: Loaded; b: Loaded; version: number }) {
  const one = windowIn(first.value) ?? half(a.trace, false);
  const two = windowIn(second.value) ?? half(b.trace, b === a);
  const figures = useMemo(() => ({
    a: measure(a.recording, a.trace, { window: one }), b: measure(b.recording, b.trace, { window: two }),
  }), [a, b, version, one.t0, one.t1, two.t0, two.t1]);
  return (
    <section class="panel">
      <h3>Figures of two windows</h3>
      <Choice side="A" window={one} trace={a.trace} given={first.value !== ""} set={(window) => (first.value = window && written(window))} />
      <Choice side="B" window={two} trace={b.trace} given={second.value !== ""} set={(window) => (second.value = window && written(window))} />
      <Headline a={figures.a} b={figures.b} judged={false} />
      <p class="muted small">
        A window has the sessions and pauses that began in it, also where they ended later, and its steps. Different
        sessions arrived in each, so no figure is called the better one.
      </p>
    </section>
  );
}

function Choice({ side, window, trace, given, set }: {
  side: "A" | "B"; window: Window; trace: Trace; given: boolean; set: (window: Window | "") => void;
}) {
  const shown = timeWindow.value;
  const field = (name: "t0" | "t1", label: string) => (
    <input type="number" step="any" value={(window[name] - trace.from).toFixed(3)} aria-label={`${label} of window ${side}, in seconds since the recording's beginning`}
      onChange={(event) => {
        const time = trace.from + Number.parseFloat(event.currentTarget.value);
        const next = { ...window, [name]: time };
        if (next.t1 > next.t0) set(next);
      }} data-testid={`window-${side.toLowerCase()}-${name}`} />
  );
  return (
    <p class="row compare-window">
      <span class={`badge ${side.toLowerCase()}`}>{side}</span>
      from {field("t0", "Begin")} to {field("t1", "End")} s
      <span class="muted small">{moment(window.t0, 0)} for {duration(window.t1 - window.t0)}{!given && ", until another one is chosen"}</span>
      {shown && <button onClick={() => set(shown)}>Take the timeline's window</button>}
      {given && <button class="plain" onClick={() => set("")} aria-label={`Forget window ${side}`}>✕</button>}
    </p>
  );
}
