// The keys and gestures of the overview's charts, as the help tells them.
import type { Key } from "../../app/keys";

export const OVERVIEW_KEYS: readonly Key[] = [
  { keys: ["drag"], what: "mark a stretch of time, which all views then show" },
  { keys: ["Shift", "←", "→"], what: "mark a stretch by keys, once a chart has the focus (Tab)" },
  { keys: ["Enter"], what: "show the stretch that is marked by keys" },
  { keys: ["Esc"], what: "mark nothing" },
  { keys: ["←", "→"], what: "move in time" },
  { keys: ["+", "−"], what: "zoom in and out" },
  { keys: ["0"], what: "all of the recording" },
];
