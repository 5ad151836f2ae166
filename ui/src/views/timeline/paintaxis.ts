// The axis with its ticks, the folds of idle time, and the lines of now and of the pointer.
import { brief, duration, moment } from "../../format";
import { outageSaid, serversOf } from "../../model/restarts";
import { fontOf } from "./font";
import { AXIS, type Frame, GUTTER, eachLane } from "./frame";
import { originOf, ticks } from "./ticks";

/** Stripes of the selected and the hovered row, borders between sessions, ticks through the rows. */
export function paintLines(frame: Frame): void {
  const { context, colours, rowHeight, scale } = frame;
  eachLane(frame, (lane, top) => {
    const { id } = lane;
    if (id !== frame.selected && id !== frame.hovered) return;
    context.fillStyle = id === frame.selected ? colours.soft : colours.bg;
    // Others stand in a packed row too: only the lane itself is told apart there.
    const packed = frame.kind === "packed";
    const from = packed ? scale.x(lane.start) - 4 : 0;
    const to = packed ? scale.x(Math.min(lane.left, frame.now)) + 4 : scale.width;
    context.fillRect(from, Math.round(top), to - from, rowHeight);
  });
  context.fillStyle = colours.line;
  context.globalAlpha = 0.7;
  for (const tick of ticks(scale, originOf(frame.trace.from))) context.fillRect(Math.round(tick.x), AXIS, 1, frame.height - AXIS);
  context.globalAlpha = 1;
}

/** A line around the selected request, where others stand in its row too. */
export function paintSelected(frame: Frame): void {
  const { context, colours, rowHeight, scale, selected } = frame;
  if (frame.kind !== "packed" || !selected) return;
  eachLane(frame, (lane, top) => {
    if (lane.id !== selected) return;
    const from = Math.max(scale.x(lane.start), 0) - 3;
    const to = Math.min(scale.x(Math.min(lane.left, frame.now)), scale.width) + 3;
    context.strokeStyle = colours.accent;
    context.lineWidth = 2;
    context.strokeRect(from, Math.round(top) + 1, Math.max(to - from, 8), rowHeight - 2);
  });
}

/** Idle times that are folded: a sunken band with broken edges. */
export function paintFolds(frame: Frame): void {
  const { context, colours, scale, height } = frame;
  for (const fold of foldsShown(frame)) {
    const from = scale.x(fold.from);
    const wide = Math.max(scale.x(fold.to) - from, 2);
    context.fillStyle = colours.sunken;
    context.fillRect(from, AXIS, wide, height - AXIS);
    context.strokeStyle = colours.strong;
    context.lineWidth = 1;
    context.beginPath();
    for (const x of [from, from + wide]) {
      for (let y = AXIS; y < height; y += 8) {
        context.moveTo(x - 2, y);
        context.lineTo(x + 2, y + 4);
        context.lineTo(x - 2, y + 8);
      }
    }
    context.stroke();
  }
}

/** The lines of a hatching are this far apart, in pixels. */
const HATCH = 9;

/** Times without an engine: a hatched band behind the rows, and how long it was. */
export function paintOutages(frame: Frame): void {
  const { context, colours, scale, height, trace, now } = frame;
  const outages = trace.restarts.outages(now);
  const servers = serversOf(outages);
  for (const outage of outages) {
    const { from, to, server } = outage;
    if (to < scale.from || from > scale.to) continue;
    const left = Math.max(scale.x(from), -2);
    const wide = Math.max(Math.min(scale.x(to), scale.width + 2) - left, 2);
    context.save();
    context.beginPath();
    context.rect(left, AXIS, wide, height - AXIS);
    context.clip();
    context.strokeStyle = colours.bad;
    context.globalAlpha = 0.3;
    context.lineWidth = 1;
    context.beginPath();
    for (let x = left - (height - AXIS); x < left + wide; x += HATCH) {
      context.moveTo(x, height);
      context.lineTo(x + height - AXIS, AXIS);
    }
    context.stroke();
    context.globalAlpha = 1;
    context.fillStyle = colours.bad;
    context.fillRect(left, AXIS, 2, height - AXIS);
    if (server) context.restore(); // Whose it was is told also where the band is narrow.
    context.font = fontOf(10.5);
    context.textBaseline = "alphabetic";
    const texts = server ? [outageSaid(outage), `${brief(server, 24)} ${duration(to - from)}`] : [outageSaid(outage), duration(to - from)];
    const text = texts.find((one) => context.measureText(one).width + 16 < wide) ?? (server ? texts[1] : undefined);
    if (text) {
      const base = height - 8 - 16 * (servers.indexOf(server) % 6);
      context.fillStyle = colours.panel;
      context.fillRect(left + 4, base - 11, context.measureText(text).width + 8, 15);
      context.fillStyle = colours.bad;
      context.fillText(text, left + 8, base);
    }
    if (!server) context.restore();
  }
}

/** The folds within the window. */
function foldsShown(frame: Frame) {
  const { scale } = frame;
  return scale.map.folds.filter((fold) => fold.to > scale.from && fold.from < scale.to);
}

/** The axis above the rows. */
export function paintAxis(frame: Frame): void {
  const { context, colours, width, scale } = frame;
  context.fillStyle = colours.panel;
  context.fillRect(0, 0, width, AXIS);
  context.fillStyle = colours.strong;
  context.fillRect(0, AXIS - 1, width, 1);
  context.save();
  context.beginPath();
  context.rect(GUTTER, 0, width - GUTTER, frame.height);
  context.clip();
  context.translate(GUTTER, 0);
  context.textBaseline = "alphabetic";
  const names = foldNames(frame);
  for (const tick of ticks(scale, originOf(frame.trace.from))) {
    context.fillStyle = colours.strong;
    context.fillRect(Math.round(tick.x), AXIS - 6, 1, 5);
    context.fillStyle = colours.ink;
    context.font = fontOf(11);
    // Half a time at the edge would read as another one.
    if (tick.x + 4 + context.measureText(tick.clock || tick.since).width > scale.width) continue;
    context.fillText(tick.clock || tick.since, tick.x + 4, tick.clock ? 14 : 22);
    if (!tick.clock) continue;
    context.fillStyle = colours.ink3;
    context.font = fontOf(10.5);
    const [left, right] = [tick.x + 4, tick.x + 4 + context.measureText(tick.since).width];
    // Half of it behind a fold's name would read as another number.
    if (!names.some((name) => name.left < right && name.left + name.wide > left)) context.fillText(tick.since, left, 28);
  }
  paintFoldNames(frame, names);
  paintNow(frame);
  paintCursor(frame);
  context.restore();
}

interface FoldName {
  text: string;
  left: number;
  wide: number;
}

/** How long the folds are, where there is room for it. */
function foldNames(frame: Frame): FoldName[] {
  const { context, scale } = frame;
  context.font = fontOf(10);
  const names: FoldName[] = [];
  let free = 0;
  for (const fold of foldsShown(frame)) {
    const from = scale.x(fold.from);
    const to = scale.x(fold.to);
    const text = to - from > 60 ? `idle ${duration(fold.to - fold.from)}` : duration(fold.to - fold.from);
    const wide = context.measureText(text).width + 8;
    const left = Math.max(Math.min((from + to - wide) / 2, scale.width - wide), 0);
    if (left < free) continue;
    free = left + wide + 2;
    names.push({ text, left, wide });
  }
  return names;
}

function paintFoldNames({ context, colours }: Frame, names: FoldName[]): void {
  context.font = fontOf(10);
  for (const { text, left, wide } of names) {
    context.fillStyle = colours.sunken;
    context.fillRect(left, AXIS - 15, wide, 14);
    context.fillStyle = colours.ink2;
    context.fillText(text, left + 4, AXIS - 5);
  }
}

function paintNow(frame: Frame): void {
  if (!frame.live) return;
  const x = Math.round(frame.scale.x(frame.now));
  frame.context.fillStyle = frame.colours.accent;
  frame.context.fillRect(x, AXIS - 8, 1, frame.height);
}

function paintCursor(frame: Frame): void {
  const { context, colours, cursor, scale } = frame;
  if (cursor === null) return;
  const x = Math.round(scale.x(cursor));
  context.fillStyle = colours.ink3;
  context.globalAlpha = 0.55;
  context.fillRect(x, AXIS, 1, frame.height - AXIS);
  context.globalAlpha = 1;
  const digits = Math.max(0, Math.min(6, Math.ceil(-Math.log10(scale.secondsPerPixel))));
  const text = moment(cursor, digits);
  context.font = fontOf(10.5);
  const wide = context.measureText(text).width + 10;
  const left = Math.min(Math.max(x - wide / 2, 0), scale.width - wide);
  context.fillStyle = colours.ink2;
  context.fillRect(left, AXIS - 17, wide, 16);
  context.fillStyle = colours.panel;
  context.fillText(text, left + 5, AXIS - 5.5);
}
