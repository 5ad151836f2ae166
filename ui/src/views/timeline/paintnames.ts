// The names left of the lanes: sessions, and under a session its further requests.
import { brief } from "../../format";
import { fontOf } from "./font";
import { AXIS, type Frame, GUTTER, rowTop, visible } from "./frame";

/** Draw the names of the visible rows. */
export function paintNames(frame: Frame): void {
  const { context, colours, rows, rowHeight, height } = frame;
  context.fillStyle = colours.panel;
  context.fillRect(0, AXIS, GUTTER, height - AXIS);
  const [first, behind] = visible(frame);
  const size = rowHeight >= 16 ? 11 : Math.max(7, rowHeight - 3);
  context.textBaseline = "middle";
  for (let i = first; i < behind; i++) {
    const { lane, place, of } = rows[i];
    const top = Math.round(rowTop(frame, i));
    const selected = lane.id === frame.selected;
    if (selected || lane.id === frame.hovered) {
      context.fillStyle = selected ? colours.soft : colours.bg;
      context.fillRect(0, top, GUTTER, rowHeight);
    }
    if (selected) {
      context.fillStyle = colours.accent;
      context.fillRect(0, top, 3, rowHeight);
    }
    if (of > 1) bracket(frame, top, place, of);
    if (rowHeight < 9) continue;
    context.font = fontOf(size, selected ? "600" : "");
    context.fillStyle = place ? colours.ink3 : colours.ink;
    context.fillText(brief(lane.id, 22), of > 1 ? 20 : 12, top + rowHeight / 2 + 0.5);
  }
  context.fillStyle = colours.strong;
  context.fillRect(GUTTER - 1, 0, 1, height);
}

/** A line that holds the requests of one session together. */
function bracket(frame: Frame, top: number, place: number, of: number): void {
  const { context, colours, rowHeight } = frame;
  const from = place === 0 ? top + rowHeight / 2 : top;
  const to = place === of - 1 ? top + rowHeight / 2 : top + rowHeight;
  context.fillStyle = colours.strong;
  context.fillRect(10, from, 1, to - from);
  context.fillRect(10, Math.round(top + rowHeight / 2), 6, 1);
}
