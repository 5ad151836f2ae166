// Everything that one repaint of the timeline needs to know.
import type { Scale } from "../../model/timemap";
import type { Trace } from "../../model/trace";
import type { Colours } from "./colours";
import type { LaneRow } from "./rows";

/** Width of the lanes' names and height of the axis, in pixels. */
export const GUTTER = 168;
export const AXIS = 38;

export interface Frame {
  context: CanvasRenderingContext2D;
  colours: Colours;
  trace: Trace;
  /** The window on the pixels right of the names. */
  scale: Scale;
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

/** Where a row begins, in pixels from the canvas's top. */
export const rowTop = (frame: Frame, row: number): number => AXIS + row * frame.rowHeight - frame.scroll;
