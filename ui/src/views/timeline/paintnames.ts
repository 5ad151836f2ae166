// The names left of the lanes: questions or tools, and under a session its further requests.
import type { Lane } from "../../model/lane";
import { fontOf } from "./font";
import { AXIS, type Frame, GUTTER, rowTop, visible } from "./frame";
import { visible as said } from "../session/content";
import { factsOf, labelOf } from "./rows/facts";
import { type LaneRow, within } from "./rows/layout";

/** Draw the names of the visible rows. */
export function paintNames(frame: Frame): void {
  const { context, colours, rows, rowHeight, height } = frame;
  context.fillStyle = colours.panel;
  context.fillRect(0, AXIS, GUTTER, height - AXIS);
  const [first, behind] = visible(frame);
  const size = rowHeight >= 16 ? 11 : Math.max(7, rowHeight - 3);
  context.textBaseline = "middle";
  for (let i = first; i < behind; i++) {
    const row = rows[i];
    const top = Math.round(rowTop(frame, i));
    const selected = row.lanes.some((lane) => lane.id === frame.selected);
    if (selected || row.lanes.some((lane) => lane.id === frame.hovered)) {
      context.fillStyle = selected ? colours.soft : colours.bg;
      context.fillRect(0, top, GUTTER, rowHeight);
    }
    if (selected) {
      context.fillStyle = colours.accent;
      context.fillRect(0, top, 3, rowHeight);
    }
    if (row.of > 1) bracket(frame, top, row.place, row.of);
    if (rowHeight < 9) continue;
    context.font = fontOf(size, selected ? "600" : "");
    context.fillStyle = row.place ? colours.ink3 : colours.ink;
    const left = row.of > 1 ? 20 : 12;
    const name = fitting(context, nameOf(frame, row), GUTTER - left - 8);
    context.fillText(name, left, top + rowHeight / 2 + 0.5);
    const used = left + context.measureText(name).width;
    if (row.lanes.length === 1 && !row.place) asker(frame, row.lanes[0], used, top);
  }
  context.fillStyle = colours.strong;
  context.fillRect(GUTTER - 1, 0, 1, height);
}

/** The least that is left for who asked, in pixels. */
const LEAST = 44;

/** Who asked for a request, to the right of its name where there is room. */
function asker(frame: Frame, lane: Lane, used: number, top: number): void {
  const { context, colours, rowHeight } = frame;
  const room = GUTTER - 8 - used - 10;
  const { tenant, user } = factsOf(frame.trace, lane).who;
  if (room < LEAST || !(tenant || user)) return;
  context.fillStyle = colours.ink3;
  context.textAlign = "right";
  context.fillText(fitting(context, said(user || tenant), room), GUTTER - 8, top + rowHeight / 2 + 0.5);
  context.textAlign = "left";
}

/** What a row is called: its request, where a packed one has several, the chosen one or how many there are. */
function nameOf(frame: Frame, row: LaneRow): string {
  const [from, to] = within(row, frame.scale.from, frame.scale.to);
  const seen: Lane[] = [];
  for (let k = from; k < to; k++) {
    const lane = row.lanes[k];
    if (lane.id === frame.hovered || lane.id === frame.selected || row.lanes.length === 1) return titleOf(frame, lane);
    if (lane.left >= frame.scale.from) seen.push(lane);
  }
  if (seen.length === 1) return titleOf(frame, seen[0]);
  return seen.length ? `${seen.length} requests` : "";
}

/** A request's label, behind its server's where there are several. */
function titleOf({ trace }: Frame, lane: Lane): string {
  const { server } = trace.partOf(lane.id);
  const label = labelOf(trace, lane);
  return trace.parts.length > 1 && server ? `${said(server)} · ${label}` : label;
}

/** The text, or as much of its beginning as fits. */
function fitting(context: CanvasRenderingContext2D, text: string, room: number): string {
  if (context.measureText(text).width <= room) return text;
  let low = 0;
  let high = text.length;
  while (low < high) {
    const middle = (low + high + 1) >>> 1;
    if (context.measureText(`${text.slice(0, middle)}…`).width <= room) low = middle;
    else high = middle - 1;
  }
  return `${text.slice(0, low)}…`;
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
