// The keys and gestures of the charts of memory, as the help tells them.
import type { Key } from "../../app/keys";

export const MEMORY_KEYS: readonly Key[] = [
  { keys: ["Ctrl", "wheel"], what: "zoom at the pointer" },
  { keys: ["Shift", "wheel"], what: "move in time (also: drag)" },
  { keys: ["Shift", "drag"], what: "zoom to a stretch of time" },
  { keys: ["click"], what: "open the timeline there" },
  { keys: ["←", "→"], what: "move in time, once the charts have the focus (Tab)" },
  { keys: ["+", "−"], what: "zoom in and out" },
  { keys: ["0"], what: "all of the recording" },
  { keys: [",", "."], what: "previous and next step" },
  { keys: ["Enter"], what: "open the timeline at the step" },
];
