// A lane in words: seconds by state, and all its states in a table for those who do not see the canvas.
import { count, duration, moment } from "../../format";
import { ENDED, type Lane, STATES } from "../../model/lane";
import { STATE_NAMES } from "../timeline/shape";

/** Seconds that a lane spent in each state, by index of `STATES`. */
export function secondsByState(lane: Lane, now: number): Float64Array {
  const seconds = new Float64Array(STATES.length);
  for (let i = 0; i < lane.length; i++) seconds[lane.state[i]] += lane.until(i, now) - lane.at[i];
  return seconds;
}

/** One bar of a request's life by state. */
export function StateBar({ lane, now }: { lane: Lane; now: number }) {
  const seconds = secondsByState(lane, now);
  const all = seconds.reduce((sum, one) => sum + one, 0) || 1;
  const parts = STATES.map((name, code) => ({ name, seconds: seconds[code] })).filter((part, code) => code !== ENDED && part.seconds > 0);
  return (
    <div class="dc-statebar" aria-hidden="true">
      {parts.map(({ name, seconds: length }) => (
        <i key={name} style={{ flexGrow: length / all, background: `var(--state-${name})` }} title={`${STATE_NAMES[name]} ${duration(length)}`} />
      ))}
    </div>
  );
}

const MOST = 500;

export function LaneTable({ lane, now }: { lane: Lane; now: number }) {
  const shown = Math.min(lane.length, MOST);
  return (
    <details class="dc-table">
      <summary>All states ({count(lane.length)})</summary>
      <table>
        <thead><tr><th>at</th><th>state</th><th class="num">for</th><th class="num">blocks</th><th class="num">host</th><th class="num">tokens</th></tr></thead>
        <tbody>
          {Array.from({ length: shown }, (_, i) => (
            <tr key={i}>
              <td>{moment(lane.at[i])}</td>
              <td>{STATE_NAMES[STATES[lane.state[i]]]}</td>
              <td class="num">{lane.kv[i] === ENDED ? "" : duration(lane.until(i, now) - lane.at[i])}</td>
              <td class="num">{count(lane.blocks[i])}</td>
              <td class="num">{count(lane.host[i])}</td>
              <td class="num">{count(lane.tokens[i])}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {lane.length > MOST && <p class="muted small">The first {MOST} of {count(lane.length)}.</p>}
    </details>
  );
}
