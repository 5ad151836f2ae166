// One repaint: lanes by state, marks, names, axis. Only visible rows are walked.
import { ENDED, type Lane, STATES, isPause } from "../../model/lane";
import { Segments, segment } from "./segments";
import { fontOf, textOn } from "./font";
import { type Frame, GUTTER, eachLane } from "./frame";
import { pauseDuring } from "./hit";
import { paintAxis, paintFolds, paintLines, paintOutages, paintSelected } from "./paintaxis";
import { paintMarks } from "./paintmarks";
import { paintNames } from "./paintnames";
import { paintSums } from "./paintsums";
import { SHAPES, STATE_NAMES } from "./shape";

const segments = new Segments();
/** Rectangles by state, four numbers each: setting a fill is dearer than filling. */
const batches: number[][] = STATES.map(() => []);
const labels: { x: number; y: number; width: number; state: number; lane: Lane; row: number }[] = [];

/** Draw a frame. */
export function paint(frame: Frame): void {
  const { context, colours, width, height } = frame;
  context.fillStyle = colours.panel;
  context.fillRect(0, 0, width, height);
  context.save();
  context.beginPath();
  context.rect(GUTTER, 0, width - GUTTER, height);
  context.clip();
  context.translate(GUTTER, 0);
  paintLines(frame);
  paintFolds(frame);
  paintOutages(frame);
  if (frame.kind === "summed") paintSums(frame);
  else {
    paintLanes(frame);
    paintMarks(frame);
    paintSelected(frame);
  }
  context.restore();
  paintNames(frame);
  paintAxis(frame);
}

function paintLanes(frame: Frame): void {
  const { context, colours, rowHeight } = frame;
  for (const batch of batches) batch.length = 0;
  labels.length = 0;
  eachLane(frame, (lane, top) => collect(frame, lane, top));
  batches.forEach((batch, state) => {
    if (!batch.length) return;
    context.fillStyle = colours.fill[state];
    for (let k = 0; k < batch.length; k += 4) context.fillRect(batch[k], batch[k + 1], batch[k + 2], batch[k + 3]);
  });
  if (rowHeight >= 16) paintLabels(frame);
  context.fillStyle = colours.ink3;
  eachLane(frame, ({ end }, top) => {
    if (end !== null) context.fillRect(Math.round(frame.scale.x(end)), top + rowHeight * 0.12, 1, rowHeight * 0.76);
  });
}

function collect(frame: Frame, lane: Lane, top: number): void {
  const { rowHeight } = frame;
  segment(lane, frame.scale, frame.now, segments);
  for (let k = 0; k < segments.length; k++) {
    const state = segments.state[k];
    if (state === ENDED) continue;
    const shape = SHAPES[state];
    const from = Math.max(segments.from[k], -2);
    const wide = Math.max(segments.to[k] - from, 1);
    const y = Math.round(top + shape.top * rowHeight);
    batches[state].push(from, y, wide, Math.max(2, Math.round(shape.height * rowHeight)));
    if (wide > 44) labels.push({ x: from, y: top, width: wide, state, lane, row: segments.row[k] });
  }
}

const SHOWN = STATES.map((name) => (name === "person" ? "person" : STATE_NAMES[name]));

/** The state's name, with the tool's where there is room; and its width, 0 where none fits. */
function fitting(frame: Frame, { x, width, state, lane, row }: (typeof labels)[number]): [text: string, wide: number] {
  const room = x + width - Math.max(x, 0) - 10;
  const tool = isPause(state) ? pauseDuring(frame.trace.pausesOf(lane.id), lane.at[row])?.tool : null;
  for (const text of tool ? [`${SHOWN[state]} · ${tool}`, SHOWN[state]] : [SHOWN[state]]) {
    const wide = frame.context.measureText(text).width;
    if (wide <= room) return [text, wide];
  }
  return ["", 0];
}

function paintLabels(frame: Frame): void {
  const { context, colours, rowHeight } = frame;
  context.font = fontOf(10.5);
  context.textBaseline = "middle";
  for (const label of labels) {
    const { x, y, state } = label;
    const [text, wide] = fitting(frame, label);
    if (!wide) continue;
    const shape = SHAPES[state];
    const middle = Math.round(y + (shape.top + shape.height / 2) * rowHeight) + 0.5;
    const left = Math.max(x, 0) + 5;
    if (typeof colours.fill[state] !== "string") {
      context.fillStyle = colours.state[state];
      const high = Math.round(shape.height * rowHeight);
      context.fillRect(left - 3, Math.round(y + shape.top * rowHeight), wide + 6, high);
    }
    context.fillStyle = textOn(colours.state[state]);
    context.fillText(text, left, middle + 0.5);
  }
}
