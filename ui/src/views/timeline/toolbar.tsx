// Search, filters and switches of the timeline.
import { count, duration } from "../../format";
import { STATES } from "../../model/lane";
import { current, filters, folding, following, setFilters, timeMap, timeWindow, trace, version } from "../../app/state";
import { ROW_HEIGHTS, clock, rowHeight, rows, showAll, toggleFolding, toggleFollowing, toggleWithin, whole, withinOnly, zoomBy } from "./store";
import { STATE_NAMES } from "./shape";

const OUTCOMES: [value: string, name: string][] = [
  ["preserve", "KV was preserved"], ["discard", "KV was discarded"], ["swap", "KV was swapped"],
  ["regret", "with regret"], ["open", "paused now"], ["resumed", "resumed"], ["followed", "followed by a request"],
  ["ended", "nobody came back"],
];

export function Toolbar() {
  version.value;
  const { q, tool, state, outcome } = filters.value;
  const any = q || tool || state || outcome;
  const tools = [...(trace.value?.tools ?? [])].sort();
  return (
    <div class="tl-toolbar" role="toolbar" aria-label="Filters and view">
      <input
        id="tl-search" type="search" placeholder="Search id, session, tool  ( / )" aria-label="Search" value={q}
        onInput={(event) => setFilters({ q: event.currentTarget.value })}
      />
      <Choice label="Tool" value={tool} all="all tools" options={tools.map((name) => [name, name])} set={(value) => setFilters({ tool: value })} />
      <Choice
        label="State" value={state} all="all states" set={(value) => setFilters({ state: value })}
        options={STATES.map((name) => [name, STATE_NAMES[name]])}
      />
      <Choice label="Outcome" value={outcome} all="all outcomes" options={OUTCOMES} set={(value) => setFilters({ outcome: value })} />
      {any && <button class="plain" onClick={() => setFilters({ q: "", tool: "", state: "", outcome: "" })}>Clear</button>}
      <span class="muted small" role="status">{shownOf()}</span>
      <span class="grow" />
      <span class="muted small" title="How long the window is, without what is folded">{lengthOf()}</span>
      <span class="tl-group">
        <button onClick={() => zoomBy(1 / 0.6)} aria-label="Zoom out" title="Zoom out (−)">−</button>
        <button onClick={() => zoomBy(0.6)} aria-label="Zoom in" title="Zoom in (+)">+</button>
        <button onClick={showAll} title="All of the recording (0)" disabled={timeWindow.value === null}>All</button>
      </span>
      <button
        aria-pressed={rowHeight.value === ROW_HEIGHTS.dense} title="Low rows, to see many"
        onClick={() => (rowHeight.value = rowHeight.value === ROW_HEIGHTS.dense ? ROW_HEIGHTS.readable : ROW_HEIGHTS.dense)}
      >
        Dense
      </button>
      <button aria-pressed={withinOnly.value} onClick={toggleWithin} title="Only requests that were here within the window (w)">In window</button>
      <button aria-pressed={folding.value} onClick={toggleFolding} title="Fold times in which nothing is queued or computed (g)">Fold idle</button>
      {current.value?.recording.live && (
        <button aria-pressed={following.value} onClick={toggleFollowing} title="Keep the newest in sight (f)">Follow</button>
      )}
    </div>
  );
}

interface ChoiceProps {
  label: string;
  value: string;
  all: string;
  options: [value: string, name: string][];
  set: (value: string) => void;
}

function Choice({ label, value, all, options, set }: ChoiceProps) {
  return (
    <select aria-label={label} value={value} class={value ? "tl-set" : ""} onChange={(event) => set(event.currentTarget.value)}>
      <option value="">{all}</option>
      {options.map(([one, name]) => <option key={one} value={one}>{name}</option>)}
    </select>
  );
}

function shownOf(): string {
  const total = trace.value?.lanes.length ?? 0;
  const shown = rows.value.length;
  return shown === total ? `${count(total)} requests` : `${count(shown)} of ${count(total)} requests`;
}

/** How long the window is, without what is folded. */
function lengthOf(): string {
  clock.value;
  const window = timeWindow.value ?? whole();
  const map = timeMap.value;
  return duration(map.draw(window.t1) - map.draw(window.t0));
}
