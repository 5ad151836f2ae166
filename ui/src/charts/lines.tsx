// Lines of several series on linear axes; series differ in colour, dash and marks.
import { linearScale } from "./scale";
import { useSize } from "./size";

export interface Series {
  name: string;
  points: { x: number; y: number; about: string }[];
}

interface Props {
  series: readonly Series[];
  /** The range of the horizontal axis, and where its ticks stand. */
  from: number;
  to: number;
  ticks: readonly number[];
  /** The top of the vertical axis at least. */
  top: number;
  acrossName: string;
  upName: string;
  formatX: (value: number) => string;
  formatY: (value: number) => string;
  /** Whether the line on which both axes are equal is drawn. */
  diagonal?: boolean;
  /** What the chart says, for those who do not see it. */
  label: string;
  height?: number;
}

const LEFT = 56;
const RIGHT = 12;
const TOP = 10;
const BOTTOM = 34;
const DASHES = ["", "6 3", "2 3", "8 3 2 3"];

/** Draw the series; a point says what it stands for when it is pointed at. */
export function Lines(props: Props) {
  const { series, from, to, ticks, top, label, height = 260 } = props;
  const [frame, { width }] = useSize<HTMLDivElement>();
  const floor = height - BOTTOM;
  const y = linearScale(top || 1, floor, TOP);
  const high = y.ticks[y.ticks.length - 1];
  const x = (value: number): number => LEFT + ((value - from) / (to - from || 1)) * Math.max(1, width - RIGHT - LEFT);
  const end = Math.min(to, high);
  return (
    <div class="chart" ref={frame} style={{ height: `${height}px` }} role="img" aria-label={label}>
      {width > 0 && (
        <svg width={width} height={height} aria-hidden="true">
          {y.ticks.map((tick) => (
            <g key={tick}>
              <line class="chart-grid" x1={LEFT} x2={width - RIGHT} y1={y.place(tick)} y2={y.place(tick)} />
              <text class="chart-tick" x={LEFT - 6} y={y.place(tick) + 4} text-anchor="end">{props.formatY(tick)}</text>
            </g>
          ))}
          {ticks.map((tick) => (
            <text key={tick} class="chart-tick" x={x(tick)} y={floor + 15} text-anchor="middle">{props.formatX(tick)}</text>
          ))}
          {props.diagonal && <line class="chart-diagonal" x1={x(from)} y1={y.place(from)} x2={x(end)} y2={y.place(end)} />}
          {series.map((one, number) => (
            <g key={one.name} class={`chart-series s${number % 4}`}>
              <polyline fill="none" stroke-dasharray={DASHES[number % 4]}
                points={one.points.map((point) => `${x(point.x)},${y.place(point.y)}`).join(" ")} />
              {one.points.map((point, at) => (
                <Mark key={at} kind={number % 4} x={x(point.x)} y={y.place(point.y)} title={`${one.name}: ${point.about}`} />
              ))}
            </g>
          ))}
          <text class="chart-name" x={(LEFT + width - RIGHT) / 2} y={height - 3} text-anchor="middle">{props.acrossName}</text>
          <text class="chart-name" transform={`translate(11 ${(TOP + floor) / 2}) rotate(-90)`} text-anchor="middle">{props.upName}</text>
        </svg>
      )}
    </div>
  );
}

/** The names of the series beside the marks that their lines have. */
export function LinesLegend({ names }: { names: readonly string[] }) {
  return (
    <p class="lines-legend">
      {names.map((name, number) => (
        <span key={name}>
          <svg width="26" height="12" aria-hidden="true" class={`chart-series s${number % 4}`}>
            <line x1="0" x2="26" y1="6" y2="6" stroke-dasharray={DASHES[number % 4]} />
            <Mark kind={number % 4} x={13} y={6} title={name} />
          </svg>
          {name}
        </span>
      ))}
    </p>
  );
}

function Mark({ kind, x, y, title }: { kind: number; x: number; y: number; title: string }) {
  const said = <title>{title}</title>;
  if (kind === 1) return <rect class="chart-point" x={x - 3} y={y - 3} width="6" height="6">{said}</rect>;
  if (kind === 2) return <path class="chart-point" d={`M${x} ${y - 4}l4 7h-8z`}>{said}</path>;
  if (kind === 3) return <path class="chart-point" d={`M${x} ${y - 4.5}l4 4.5-4 4.5-4-4.5z`}>{said}</path>;
  return <circle class="chart-point" cx={x} cy={y} r="3.2">{said}</circle>;
}
