// What a turn of the wheel asks for, in every view with a time axis.

export type Turn =
  | { kind: "scroll" }
  /** Below 1: closer. */
  | { kind: "zoom"; factor: number }
  /** In pixels to the right. */
  | { kind: "move"; by: number };

/** Lines and pages of old mice, in pixels. */
const UNITS = [1, 16, 400];
/** A notch of a mouse counts like a quick pinch, and not several times as much. */
const FASTEST = 24;

/** Scroll, unless Ctrl is held (a pinch on a trackpad looks like that too), Shift is, or the wheel is turned aside. */
export function turnOf(event: Pick<WheelEvent, "deltaX" | "deltaY" | "deltaMode" | "ctrlKey" | "metaKey" | "shiftKey" | "altKey">): Turn {
  const unit = UNITS[event.deltaMode] ?? 1;
  const [across, down] = [event.deltaX * unit, event.deltaY * unit];
  if (event.ctrlKey || event.metaKey) return { kind: "zoom", factor: Math.exp(Math.max(-FASTEST, Math.min(FASTEST, down)) * 0.01) };
  if (event.shiftKey) return { kind: "move", by: across || down };
  return Math.abs(across) > Math.abs(down) && !event.altKey ? { kind: "move", by: across } : { kind: "scroll" };
}
