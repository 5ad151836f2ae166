// Marks of decisions: a diamond where a pause begins, ticks where KV was released or swapped.
import type { Lane } from "../../model/lane";
import type { Pause } from "../../model/pause";
import { type Frame, eachLane } from "./frame";

/** Diamonds closer together than this are left out, in pixels; so are all ticks where diamonds are dense. */
const APART = 7;

/** Draw the marks of the visible rows. */
export function paintMarks(frame: Frame): void {
  eachLane(frame, (lane, top) => {
    if (isNarrow(frame, lane)) return;
    let last = -Infinity;
    for (const pause of frame.trace.pausesOf(lane.id)) {
      const x = frame.scale.x(pause.at);
      if (x > frame.scale.width + APART) break;
      if (x >= -APART && x - last >= APART) {
        diamond(frame, x, top, pause.at === frame.pause && pause.request === frame.selected);
        last = x;
      }
      decisions(frame, pause, top);
    }
  });
}

/** Whether a mark would cover a whole request: thousands of them cost much time, and tell nothing. */
function isNarrow({ scale, now, selected }: Frame, { id, start, end }: Lane): boolean {
  return id !== selected && scale.x(end ?? now) - scale.x(start) < APART;
}

function diamond(frame: Frame, x: number, top: number, chosen: boolean): void {
  const { context, colours, rowHeight } = frame;
  const size = chosen ? 5.5 : Math.min(4, rowHeight * 0.22);
  const y = top + Math.max(rowHeight * 0.26, size + 0.5);
  context.beginPath();
  context.moveTo(x, y - size);
  context.lineTo(x + size, y);
  context.lineTo(x, y + size);
  context.lineTo(x - size, y);
  context.closePath();
  context.fillStyle = chosen ? colours.accent : colours.ink;
  context.fill();
  context.strokeStyle = colours.panel;
  context.lineWidth = 1;
  context.stroke();
}

/** A tick that points down: blocks were released. One that points up: they went to the host. */
function decisions(frame: Frame, pause: Pause, top: number): void {
  const { context, colours, rowHeight, scale } = frame;
  let last = scale.x(pause.at) + 1;
  for (const [seconds, act] of pause.decisions) {
    const x = scale.x(pause.at + seconds);
    if (x < -4 || x > scale.width + 4 || x - last < 5) continue;
    last = x;
    const down = act === "discard";
    const base = top + rowHeight * (down ? 0.14 : 0.36);
    const tip = top + rowHeight * (down ? 0.36 : 0.14);
    context.beginPath();
    context.moveTo(x - 3, base);
    context.lineTo(x + 3, base);
    context.lineTo(x, tip);
    context.closePath();
    context.fillStyle = down ? colours.bad : colours.state[1];
    context.fill();
  }
}
