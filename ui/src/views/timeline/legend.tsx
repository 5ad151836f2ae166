// What the lanes' colours, patterns and heights mean.
import { STATES } from "../../model/lane";
import { SHAPES, STATE_MEANINGS, STATE_NAMES } from "./shape";

export function Legend() {
  return (
    <div class="tl-legend" aria-label="Legend">
      {STATES.map((name, code) => name !== "ended" && (
        <span key={name} title={STATE_MEANINGS[name]}>
          <svg width="18" height="14" aria-hidden="true">
            <Pattern name={name} />
            <rect x="0" y={14 * SHAPES[code].top} width="18" height={14 * SHAPES[code].height} fill={`var(--state-${name})`} />
            <rect x="0" y={14 * SHAPES[code].top} width="18" height={14 * SHAPES[code].height} fill={`url(#tl-${name})`} />
          </svg>
          {STATE_NAMES[name]}
        </span>
      ))}
      <span title="A pause begins: what was known, and the price of each alternative.">
        <svg width="11" height="14" aria-hidden="true"><path d="M5.5 2.5 10 7l-4.5 4.5L1 7z" fill="var(--ink)" /></svg>
        pause
      </span>
      <span title="Blocks of a paused request were released.">
        <svg width="9" height="14" aria-hidden="true"><path d="M1 5h7l-3.5 5z" fill="var(--bad)" /></svg>
        released
      </span>
      <span title="Blocks of a paused request were left to their copies on the host.">
        <svg width="9" height="14" aria-hidden="true"><path d="M1 10h7L4.5 5z" fill="var(--state-loading)" /></svg>
        swapped
      </span>
    </div>
  );
}

const PATHS: Record<string, [path: string, stroke: string]> = {
  loading: ["M-2 10 10 -2M-2 2 2 -2M6 10 10 6", "var(--panel)"],
  recompute: ["M-1 9 9 -1M-1 -1 9 9", "var(--panel)"],
  offloaded: ["M0 2H8M0 6H8", "var(--ink)"],
  dropped: ["M1 2H2.2M5 6H6.2", "var(--ink)"],
  person: ["M2 0V8M6 0V8", "var(--ink)"],
  lost: ["M-2 -2 10 10M-2 6 2 10M6 -2 10 2", "var(--panel)"],
};

function Pattern({ name }: { name: string }) {
  if (!PATHS[name]) return null;
  const [path, stroke] = PATHS[name];
  return (
    <pattern id={`tl-${name}`} width="8" height="8" patternUnits="userSpaceOnUse">
      <path d={path} stroke={stroke} stroke-opacity="0.5" stroke-width="1.2" />
    </pattern>
  );
}
