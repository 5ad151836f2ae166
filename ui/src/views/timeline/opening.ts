// What the timeline shows at first: of a live recording with many requests those that are here now.
import { effect } from "@preact/signals";
import { type Loaded, current, following, selection, timeWindow, version } from "../../app/state";
import { showNewest, withinOnly } from "./store";

/** A recording with more requests opens at its newest. */
export const MANY = 40;

let opened: Loaded | null = null;

/** Open recordings as they come, unless the address says what to show. Returns how to stop. */
export function openWell(): () => void {
  return effect(() => {
    version.value;
    const loaded = current.value;
    if (!loaded || loaded === opened || loaded.state !== "ready" || !loaded.recording.live) return;
    const asked = following.peek();
    if (!asked && (timeWindow.peek() || selection.peek())) opened = loaded;
    if (loaded === opened || (!asked && loaded.trace.lanes.length <= MANY)) return;
    opened = loaded;
    if (!asked) {
      following.value = true;
      withinOnly.value = true;
    }
    showNewest();
  });
}
