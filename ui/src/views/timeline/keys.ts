// The keys of the timeline.
import { helpOpen } from "../../app/help";
import { go } from "../../app/router";
import { selection, trace } from "../../app/state";
import {
  choose, moveBy, selectedPause, showAll, showSelected, step, stepPause, toggleFolding, toggleFollowing, toggleWithin, zoomBy,
} from "./store";

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
  "/": () => document.querySelector<HTMLInputElement>("#tl-search")?.focus(),
  g: toggleFolding,
  w: toggleWithin,
  f: toggleFollowing,
  "?": () => void (helpOpen.value = true),
};

/** Do what the key asks for, unless a field or a button has the focus. Returns how to stop. */
export function listenToKeys(): () => void {
  const pressed = (event: KeyboardEvent): void => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const target = event.target as HTMLElement | null;
    if (target?.closest("input, select, textarea")) {
      if (event.key === "Escape") target.blur();
      return;
    }
    if (event.key === "Enter" && target?.closest("a, button, summary")) return;
    const action = ACTIONS[event.key];
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
