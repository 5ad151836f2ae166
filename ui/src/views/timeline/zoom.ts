// Moving and scaling the window, as pure functions of it.
import type { Window } from "../../app/state";
import type { TimeMap } from "../../model/timemap";

const LEAST = 1e-3;

/** Scale the window by `factor` (below 1: closer) so that `time` stays where it is drawn. */
export function zoomed(window: Window, map: TimeMap, time: number, factor: number, whole: Window): Window {
  const from = map.draw(window.t0);
  const to = map.draw(window.t1);
  const most = (map.draw(whole.t1) - map.draw(whole.t0)) * 1.2;
  const length = Math.min(Math.max((to - from) * factor, LEAST), Math.max(most, LEAST));
  const share = (map.draw(time) - from) / (to - from);
  const start = map.draw(time) - share * length;
  return inside({ t0: map.time(start), t1: map.time(start + length) }, map, whole);
}

/** Move the window by a share of its length. */
export function moved(window: Window, map: TimeMap, share: number, whole: Window): Window {
  const from = map.draw(window.t0);
  const length = map.draw(window.t1) - from;
  const start = from + share * length;
  return inside({ t0: map.time(start), t1: map.time(start + length) }, map, whole);
}

/** Something of the recording stays in sight: at least a tenth of the window. */
function inside(window: Window, map: TimeMap, whole: Window): Window {
  const from = map.draw(window.t0);
  const length = map.draw(window.t1) - from;
  const first = map.draw(whole.t0) - length * 0.9;
  const last = map.draw(whole.t1) - length * 0.1;
  const start = Math.min(Math.max(from, first), Math.max(first, last));
  return start === from ? window : { t0: map.time(start), t1: map.time(start + length) };
}

/** A window around [from, to] with a little room at both sides. */
export function around(from: number, to: number, room = 0.15): Window {
  const length = Math.max(to - from, LEAST);
  return { t0: from - length * room, t1: from + length * (1 + room) };
}
