// What each alternative was priced at, and what it would have cost with the pause's true length.
import { blockSeconds } from "../../format";
import type { Lane } from "../../model/lane";
import type { Pause } from "../../model/pause";
import { ALTERNATIVES, type Alternative } from "../../model/records";
import { cheapest, chosenOf, impossible } from "./chosen";
import { ALTERNATIVE_MEANINGS, ALTERNATIVE_NAMES, otherwise } from "./words";

export function PriceChart({ pause, lane }: { pause: Pause; lane: Lane | undefined }) {
  const { hindsight } = pause;
  const values = ALTERNATIVES.flatMap((one) => [pause.prices[one], hindsight?.[one]]);
  const most = Math.max(1e-9, ...values.filter((value): value is number => typeof value === "number"));
  const chosen = chosenOf(pause, lane);
  const least = cheapest(pause.prices);
  return (
    <section class="dc-prices" aria-label="Prices of the alternatives in block-seconds">
      <div class="dc-price-head">
        <span />
        <span class="dc-key"><i class="dc-solid" />expected</span>
        {hindsight && <span class="dc-key"><i class="dc-hollow" />in hindsight</span>}
        <span class="muted">block-seconds</span>
      </div>
      {ALTERNATIVES.map((one) => (
        <Bars
          key={one} one={one} pause={pause} most={most} chosen={chosen === one}
          least={least === one} best={cheapest(hindsight) === one}
        />
      ))}
      {chosen && least && chosen !== least && <p class="small soft">{otherwise(pause.policy)}</p>}
    </section>
  );
}

interface BarsProps {
  one: Alternative;
  pause: Pause;
  most: number;
  chosen: boolean;
  least: boolean;
  best: boolean;
}

function Bars({ one, pause, most, chosen, least, best }: BarsProps) {
  const price = pause.prices[one];
  const after = pause.hindsight?.[one];
  const done = pause.end ? "chosen" : "so far";
  return (
    <div class={`dc-price ${chosen ? "dc-chosen" : ""}`} title={ALTERNATIVE_MEANINGS[one]}>
      <div class="dc-price-name">
        {ALTERNATIVE_NAMES[one]}
        {chosen && <span class="dc-mark">✓ {done}</span>}
      </div>
      <div class="dc-bars">
        {typeof price === "number"
          ? <Bar value={price} most={most} kind="dc-solid" colour={`var(--${one})`} note={least ? "least expected" : ""} />
          : <div class="muted small">{impossible(one, pause)}</div>}
        {typeof after === "number" && (
          <Bar value={after} most={most} kind="dc-hollow" colour={`var(--${one})`} note={best ? "least in hindsight" : ""} />
        )}
      </div>
    </div>
  );
}

function Bar({ value, most, kind, colour, note }: { value: number; most: number; kind: string; colour: string; note: string }) {
  return (
    <div class="dc-bar">
      <div class="dc-track">
        <i class={kind} style={{ width: `${Math.max((100 * value) / most, 0.5)}%`, color: colour }} />
      </div>
      <span class="num">{blockSeconds(value).replace(/ blk·s$/, "")}</span>
      <span class="dc-note">{note}</span>
    </div>
  );
}
