// How a sample is spread, on one line: from its 10th to its 90th percentile, its median and its 99th.
import type { Scale } from "./scale";
import { quantile } from "./stats";

/** The width and height of a spread, in CSS pixels. */
export const SPREAD = { width: 150, height: 14 };

/** Draw ascending values on `scale`, which all spreads of a table share. */
export function Spread({ ascending, scale, label }: { ascending: Float64Array; scale: Scale; label: string }) {
  if (!ascending.length) return null;
  const at = (share: number): number => scale.place(Math.max(quantile(ascending, share), Number.MIN_VALUE));
  const [low, middle, high, far] = [0.1, 0.5, 0.9, 0.99].map(at);
  const half = SPREAD.height / 2;
  return (
    <svg class="spread" width={SPREAD.width} height={SPREAD.height} role="img" aria-label={label}>
      <title>{label}</title>
      {scale.ticks.map((tick) => (
        <line key={tick} class="chart-grid" x1={scale.place(tick)} x2={scale.place(tick)} y1="0" y2={SPREAD.height} />
      ))}
      <line class="spread-far" x1={low} x2={far} y1={half} y2={half} />
      <rect class="spread-box" x={low} width={Math.max(1, high - low)} y={half - 4} height="8" rx="2" />
      <line class="spread-middle" x1={middle} x2={middle} y1="1" y2={SPREAD.height - 1} />
      <circle class="spread-end" cx={far} cy={half} r="2" />
    </svg>
  );
}
