// A histogram on a logarithmic axis, with marks at its percentiles.
import { type Bins, largest } from "./stats";
import { linearScale, logScale } from "./scale";
import { useSize } from "./size";

interface Props {
  bins: Bins;
  marks: { label: string; value: number }[];
  /** What is counted, and along which axis. */
  counted: string;
  axis: string;
  format: (value: number) => string;
  tickFormat: (value: number) => string;
  height?: number;
}

const LEFT = 44;
const RIGHT = 12;
const TOP = 36;
const BOTTOM = 34;

/** Draw the bins; each bar names its range and its count when it is pointed at. */
export function Histogram({ bins, marks, counted, axis, format, tickFormat, height = 200 }: Props) {
  const [frame, { width }] = useSize<HTMLDivElement>();
  const said = marks.map((mark) => `${mark.label} ${format(mark.value)}`).join(", ");
  return (
    <div class="chart" ref={frame} style={{ height: `${height}px` }}>
      {width > 0 && bins.counts.length > 0 && (
        <svg width={width} height={height} role="img" aria-label={`${counted} by ${axis}: ${said}`}>
          <Drawn bins={bins} marks={marks} axis={axis} counted={counted} format={format} tickFormat={tickFormat}
            width={width} height={height} />
        </svg>
      )}
    </div>
  );
}

function Drawn(props: Required<Props> & { width: number }) {
  const { bins, marks, axis, counted, format, tickFormat, width, height } = props;
  const floor = height - BOTTOM;
  const across = logScale(bins.edges[0], bins.edges[bins.edges.length - 1], LEFT, width - RIGHT);
  const up = linearScale(largest(bins.counts), floor, TOP);
  return (
    <>
      {up.ticks.filter(Number.isInteger).map((tick) => (
        <g key={tick}>
          <line class="chart-grid" x1={LEFT} x2={width - RIGHT} y1={up.place(tick)} y2={up.place(tick)} />
          <text class="chart-tick" x={LEFT - 6} y={up.place(tick) + 4} text-anchor="end">{tick}</text>
        </g>
      ))}
      {bins.counts.map((count, bin) => {
        const from = across.place(bins.edges[bin]);
        const to = across.place(bins.edges[bin + 1]);
        return (
          <rect key={bin} class="chart-bar" x={from + 0.5} width={Math.max(1, to - from - 1)}
            y={up.place(count)} height={floor - up.place(count)}>
            <title>{`${format(bins.edges[bin])} to ${format(bins.edges[bin + 1])}: ${count} ${counted}`}</title>
          </rect>
        );
      })}
      {across.ticks.map((tick) => (
        <text key={tick} class="chart-tick" x={across.place(tick)} y={floor + 15} text-anchor="middle">
          {tickFormat(tick)}
        </text>
      ))}
      <text class="chart-name" x={(LEFT + width - RIGHT) / 2} y={height - 3} text-anchor="middle">{axis}</text>
      <Marks marks={marks} place={across.place} floor={floor} />
    </>
  );
}

/** The rows of labels, and how wide one is, in pixels. */
const LINES = [10, 20, 30];
const LABEL = 26;

/** Return the row of each label at ascending places: the first in which it is clear of those before. */
export function linesOf(places: readonly number[]): number[] {
  const until = LINES.map(() => -Infinity);
  return places.map((place) => {
    const line = Math.max(0, until.findIndex((end) => place - LABEL / 2 >= end));
    until[line] = place + LABEL / 2;
    return line;
  });
}

/** Percentiles close together stand one below the other, so that each can be read. */
function Marks({ marks, place, floor }: {
  marks: Props["marks"]; place: (value: number) => number; floor: number;
}) {
  const shown = marks.filter((mark) => mark.value > 0).sort((a, b) => a.value - b.value);
  const lines = linesOf(shown.map((mark) => place(mark.value)));
  return (
    <>
      {shown.map((mark, number) => (
        <line key={mark.label} class="chart-mark" x1={place(mark.value)} x2={place(mark.value)}
          y1={LINES[lines[number]] + 2} y2={floor} />
      ))}
      {shown.map((mark, number) => (
        <text key={mark.label} class="chart-tick chart-halo" x={place(mark.value)} y={LINES[lines[number]]}
          text-anchor="middle">{mark.label}</text>
      ))}
    </>
  );
}
