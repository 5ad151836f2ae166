// A pause by who took its time, as a bar with words or as one line.
import { current, nowOf } from "../../app/state";
import { SHARES, type Share, type Split, splitOf } from "../../causes/split";
import { duration } from "../../format";
import type { Pause } from "../../model/pause";
import "./request.css";

const SHARE_NAMES: Record<Share, string> = {
  tool: "the tool itself", person: "a person", runtime: "the runtime", step: "the step that ran", unseen: "not seen",
};

export const SHARE_MEANINGS: Record<Share, string> = {
  tool: "A call ran, by its own span.",
  person: "A call waited for a person's answer or consent.",
  runtime: "Calls were read and started; their results were rendered and tokenised.",
  step: "The result was with the engine, which took it in when the step that ran had ended.",
  unseen: "No span tells of it, as of tools that a client runs.",
};

const COLOURS: Record<Share, string> = {
  tool: "--state-paused", person: "--state-person", runtime: "--ink-2", step: "--ink-3", unseen: "--line-strong",
};

/** What a share is called; the runtime's holds the step's where no span tells them apart. */
export const shareName = (share: Share, exact: boolean): string =>
  share === "runtime" && !exact ? "the runtime and the step that ran" : SHARE_NAMES[share];

/** `line`: in one line, as for a tooltip. */
export function PauseSplit({ pause, line = false }: { pause: Pause; line?: boolean }) {
  const loaded = current.value;
  if (!loaded) return null;
  const split = splitOf(loaded.trace, pause, nowOf(loaded));
  const shares = SHARES.filter((share) => split.seconds[share] > 0);
  if (!shares.length || split.total <= 0) return null;
  if (line) return split.seconds.unseen > 0 ? null : <div class="muted">{saidOf(split, shares)}</div>;
  return (
    <div class="rq-split" data-testid="pause-split">
      <div class="dc-statebar" aria-hidden="true">
        {shares.map((share) => <i key={share} style={{ flexGrow: split.seconds[share] / split.total, background: `var(${COLOURS[share]})` }} />)}
      </div>
      <div class="dc-statekey">
        {shares.map((share) => (
          <span key={share} title={SHARE_MEANINGS[share]} data-testid={`split-${share}`}>
            <i class="dc-swatch" style={{ background: `var(${COLOURS[share]})` }} />{shareName(share, split.exact)} <b>{duration(split.seconds[share])}</b>
          </span>
        ))}
        {pause.outcome === "resumed" && <span title="From the result until it ran, in the engine's queue">then queued <b>{duration(pause.end?.queue_seconds)}</b></span>}
      </div>
      {shares.includes("unseen") && <p class="small soft">{SHARE_MEANINGS.unseen}</p>}
    </div>
  );
}

function saidOf(split: Split, shares: Share[]): string {
  return shares.map((share) => `${shareName(share, split.exact)} ${duration(split.seconds[share])}`).join(", ");
}
