// A bar of how long something was in each state, told apart by pattern as well as by colour.
import { duration, percent } from "../format";
import { STATES } from "../model/lane";
import { STATE_NAMES } from "../views/timeline/shape";

/** The parts of a bar: states that took time, in the order of the states. */
export function partsOf(seconds: ArrayLike<number>): { state: string; seconds: number; share: number }[] {
  const whole = Array.from(seconds).reduce((sum, each) => sum + each, 0);
  return STATES
    .map((state, code) => ({ state, seconds: seconds[code] ?? 0, share: (seconds[code] ?? 0) / whole }))
    .filter((part) => part.seconds > 0 && part.state !== "ended");
}

/** What the bar says in words. */
export function toldOf(seconds: ArrayLike<number>): string {
  return partsOf(seconds)
    .map((part) => `${STATE_NAMES[part.state]} ${duration(part.seconds)} (${percent(part.share)})`)
    .join(", ");
}

/** Draw the bar; `share` is the part of the width that it takes. */
export function StateBar({ seconds, share = 1 }: { seconds: ArrayLike<number>; share?: number }) {
  const told = toldOf(seconds);
  if (!told) return <span class="statebar" style={{ width: `${share * 100}%` }} />;
  return (
    <span class="statebar" role="img" aria-label={told} title={told} style={{ width: `${share * 100}%` }}>
      {partsOf(seconds).map((part) => (
        <i key={part.state} class={`statefill ${part.state}`} style={{ flexGrow: part.share }} />
      ))}
    </span>
  );
}

/** The bar's states by name, each with its seconds. */
export function StateLegend({ seconds }: { seconds: ArrayLike<number> }) {
  return (
    <span class="statelegend">
      {partsOf(seconds).map((part) => (
        <span key={part.state} data-testid={`state-${part.state}`}>
          <i class={`statefill ${part.state}`} aria-hidden="true" />
          {STATE_NAMES[part.state]} <b>{duration(part.seconds)}</b>
        </span>
      ))}
    </span>
  );
}
