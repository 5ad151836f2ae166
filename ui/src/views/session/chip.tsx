// A pause in a few words: how long, what became of its KV cache, at what regret; it links to the decision.
import { link } from "../../app/router";
import { trace } from "../../app/state";
import { blockSeconds, duration } from "../../format";
import type { Pause } from "../../model/pause";
import { outcomeOf } from "../decision/words";
import { type Split, splitOf } from "../../causes/split";
import { visible } from "./content";

/** What regret is. */
export const REGRET = "What it cost beyond the cheapest alternative in hindsight, in block-seconds. Held memory counts as far as others wanted it; a dash: nobody did";

const WORDS: Record<string, string> = {
  preserve: "KV preserved", discard: "KV discarded", swap: "KV swapped",
};

/** How a handling is said of a pause that resumed. */
export const handlingSaid = (handling: string): string => WORDS[handling] ?? handling;

/** What became of a pause: how its KV came back, or who did not. */
function becameOf(pause: Pause): string {
  if (pause.outcome === "open") return "still open";
  return pause.outcome === "resumed" && pause.handling ? handlingSaid(pause.handling) : outcomeOf(pause);
}

/** How long a person was waited for, as the call says; the pause itself is longer. */
function personSaid(pause: Pause, split: Split | null): string {
  const known = split && split.seconds.person > 0 ? ` ${duration(split.seconds.person)}` : "";
  return pause.end ? (known ? `waited for a person for${known}` : "for a person") : `waits for a person${known && `,${known} so far`}`;
}

export function PauseChip({ pause, now }: { pause: Pause; now: number }) {
  const seconds = pause.seconds ?? (pause.end ? null : now - pause.at);
  const split = trace.value ? splitOf(trace.value, pause, now) : null;
  return (
    <a class="pausechip" href={link("decision", [pause.request, String(pause.at)])} data-testid="pause-chip">
      <i class={`handling ${pause.handling ?? "open"}`} aria-hidden="true" />
      <span>{`paused for ${pause.tool ? visible(pause.tool) : "a tool"}`} <b>{duration(seconds)}</b></span>
      {pause.person && <span>{personSaid(pause, split)}</span>}
      <span>{becameOf(pause)}</span>
      {(pause.end?.queue_seconds ?? 0) > 0 && <span>then queued {duration(pause.end?.queue_seconds)}</span>}
      {pause.regret !== null && <span title={REGRET}>{pause.regret > 0 ? `regret ${blockSeconds(pause.regret)}` : "no regret"}</span>}
    </a>
  );
}
