// The keys of the timeline.
import { type Key, isTaken } from "../../app/keys";
import { go } from "../../app/router";
import { selection, trace } from "../../app/state";
import {
  choose, moveBy, nextLayout, selectedPause, showAll, showSelected, step, stepPause, toggleFolding, toggleFollowing, toggleWithin, zoomBy,
} from "./store";

/** What the help says of them. */
export const TIMELINE_KEYS: readonly Key[] = [
  { keys: ["wheel"], what: "scroll the rows" },
  { keys: ["Ctrl", "wheel"], what: "zoom at the pointer (also: pinch)" },
  { keys: ["Shift", "wheel"], what: "move in time (also: drag)" },
  { keys: ["←", "→"], what: "move in time" },
  { keys: ["+", "−"], what: "zoom in and out" },
  { keys: ["0"], what: "all of the recording" },
  { keys: ["Shift", "drag"], what: "zoom to a stretch of time" },
  { keys: ["z"], what: "zoom to the selected request (also: double-click)" },
  { keys: ["j", "k"], what: "next and previous request" },
  { keys: ["[", "]"], what: "previous and next pause of the selected request" },
  { keys: ["Enter"], what: "open the pause: prices, inputs, what became of it" },
  { keys: ["Esc"], what: "leave the selection" },
  { keys: ["r"], what: "rows: one each, dense, packed, summed up, or as it fits" },
  { keys: ["g"], what: "fold or unfold idle times" },
  { keys: ["w"], what: "only requests that were here within the window, or all" },
  { keys: ["f"], what: "follow what is live" },
];

const ACTIONS: Record<string, () => void> = {
  ArrowLeft: () => moveBy(-0.12),
  ArrowRight: () => moveBy(0.12),
  "+": () => zoomBy(0.7),
  "=": () => zoomBy(0.7),
  "-": () => zoomBy(1 / 0.7),
  "0": showAll,
  z: showSelected,
  j: () => step(1),
  k: () => step(-1),
  ArrowDown: () => step(1),
  ArrowUp: () => step(-1),
  "]": () => stepPause(1),
  "[": () => stepPause(-1),
  Enter: openDecision,
  Escape: () => choose(""),
  r: nextLayout,
  g: toggleFolding,
  w: toggleWithin,
  f: toggleFollowing,
};

/** Do what the key asks for, unless a field or a button has the focus. Returns how to stop. */
export function listenToKeys(): () => void {
  const pressed = (event: KeyboardEvent): void => {
    const target = event.target as HTMLElement | null;
    if (isTaken(event)) {
      if (event.key === "Escape" && !document.querySelector("dialog[open]")) target?.blur();
      return;
    }
    if (event.key === "Enter" && target?.closest("a, button, summary")) return;
    const action = Object.hasOwn(ACTIONS, event.key) ? ACTIONS[event.key] : null;
    if (!action) return;
    event.preventDefault();
    action();
  };
  addEventListener("keydown", pressed);
  return () => removeEventListener("keydown", pressed);
}

/** Open the selected pause, or the selected request's dearest one. */
function openDecision(): void {
  const pauses = trace.peek()?.pausesOf(selection.peek()) ?? [];
  const at = selectedPause.peek();
  const pause = pauses.find((one) => one.at === at) ?? [...pauses].sort((a, b) => (b.regret ?? 0) - (a.regret ?? 0))[0];
  if (pause) go("decision", [pause.request, String(pause.at)]);
}
