// Everything that one repaint of the timeline needs to know.
import type { Lane } from "../../model/lane";
import type { Scale } from "../../model/timemap";
import type { Trace } from "../../model/trace";
import type { Colours } from "./colours";
import { type Layout, type LaneRow, within } from "./rows/layout";

/** Width of the lanes' names and height of the axis, in pixels. */
export const GUTTER = 168;
export const AXIS = 38;

export interface Frame {
  context: CanvasRenderingContext2D;
  colours: Colours;
  trace: Trace;
  /** The window on the pixels right of the names. */
  scale: Scale;
  /** The requests that are shown, which the rows hold unless they are summed up. */
  lanes: readonly Lane[];
  kind: Layout["kind"];
  rows: readonly LaneRow[];
  rowHeight: number;
  /** How far the rows are scrolled, in pixels. */
  scroll: number;
  width: number;
  height: number;
  /** The recording's time at this moment. */
  now: number;
  live: boolean;
  /** The selected request, and when its selected pause began. */
  selected: string;
  pause: number | null;
  /** The request under the pointer. */
  hovered: string;
  cursor: number | null;
}

/** The first visible row and the one behind the last. */
export function visible(frame: Frame): [first: number, behind: number] {
  const first = Math.max(0, Math.floor(frame.scroll / frame.rowHeight));
  const behind = Math.ceil((frame.scroll + frame.height - AXIS) / frame.rowHeight);
  return [first, Math.min(frame.rows.length, behind)];
}

/** Call `use` with each lane of the visible rows that may be seen, and where its row begins. */
export function eachLane(frame: Frame, use: (lane: Lane, top: number) => void): void {
  const [first, behind] = visible(frame);
  for (let i = first; i < behind; i++) {
    const row = frame.rows[i];
    const top = rowTop(frame, i);
    const [from, to] = within(row, frame.scale.from, frame.scale.to);
    for (let k = from; k < to; k++) use(row.lanes[k], top);
  }
}

/** Where a row begins, in pixels from the canvas's top. */
export const rowTop = (frame: Frame, row: number): number => AXIS + row * frame.rowHeight - frame.scroll;
