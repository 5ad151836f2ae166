// Search, filters and switches of the timeline.
import { count, duration } from "../../format";
import { STATES } from "../../model/lane";
import { current, filters, folding, following, setFilters, timeMap, timeWindow, trace, version } from "../../app/state";
import { visible } from "../session/content";
import { Choice } from "./choice";
import { MoreFilters, clearMore } from "./morefilters";
import { LAYOUTS, type Wanted } from "./rows/layout";
import { ORDERS, type Order } from "./rows/order";
import { STATE_NAMES } from "./shape";
import {
  MORE, clock, lanes, more, showAll, toggleFolding, toggleFollowing, toggleWithin, wantedLayout, wantedOrder, whole, withinOnly, zoomBy,
} from "./store";

const OUTCOMES: [value: string, name: string][] = [
  ["preserve", "KV was preserved"], ["discard", "KV was discarded"], ["swap", "KV was swapped"],
  ["regret", "with regret"], ["open", "paused now"], ["resumed", "resumed"], ["followed", "followed by a request"],
  ["ended", "no follow-up came"],
];
const ROWS: Record<Wanted, string> = {
  fit: "rows: as it fits", each: "one request each", dense: "low rows", packed: "several in a row", summed: "summed up",
};
const SORTED: Record<Order, string> = { arrival: "by arrival", duration: "longest first", waiting: "most waiting first", regret: "most regret first" };

export function Toolbar() {
  version.value;
  const { q, tool, state, outcome } = filters.value;
  const any = q || tool || state || outcome || Object.values(more.value).some(Boolean);
  const tools = [...(trace.value?.tools ?? [])].sort();
  const clear = (): void => {
    setFilters({ q: "", tool: "", state: "", outcome: "" });
    clearMore();
  };
  return (
    <div class="tl-toolbar" role="toolbar" aria-label="Filters and view">
      <input
        id="tl-search" type="search" placeholder="Search question, tool, id  ( / )" aria-label="Search" value={q}
        onInput={(event) => setFilters({ q: event.currentTarget.value })}
      />
      <Choice label="Tool" value={tool} all="all tools" options={tools.map((name) => [name, name])} set={(value) => setFilters({ tool: value })} />
      <Choice
        label="State" value={state} all="all states" set={(value) => setFilters({ state: value })}
        options={STATES.map((name) => [name, STATE_NAMES[name]])}
      />
      <Choice label="Outcome" value={outcome} all="all outcomes" options={OUTCOMES} set={(value) => setFilters({ outcome: value })} />
      {trace.value && trace.value.parts.length > 1 && (
        <Choice label="Server" value={MORE.server.value} all="all servers" options={[...new Set(trace.value.parts.map((part) => part.server))].map((name) => [name, visible(name)])} set={(value) => (MORE.server.value = value)} />
      )}
      <MoreFilters />
      {any && <button class="plain" onClick={clear}>Clear</button>}
      <span class="muted small" role="status">{shownOf()}</span>
      <span class="grow" />
      <span class="tl-view">
        <span class="muted small" title="How long the window is, without what is folded">{lengthOf()}</span>
        <span class="tl-group">
          <button onClick={() => zoomBy(1 / 0.6)} aria-label="Zoom out" title="Zoom out (−)">−</button>
          <button onClick={() => zoomBy(0.6)} aria-label="Zoom in" title="Zoom in (+)">+</button>
          <button onClick={showAll} title="All of the recording (0)" disabled={timeWindow.value === null}>All</button>
        </span>
        <select aria-label="Order of requests" value={wantedOrder.value} onChange={(event) => (wantedOrder.value = event.currentTarget.value as Order)}>
          {ORDERS.map((order) => <option key={order} value={order}>{SORTED[order]}</option>)}
        </select>
        <select aria-label="Rows" title="How requests are put into rows (r); several share a row only by arrival"
          value={wantedLayout.value} onChange={(event) => (wantedLayout.value = event.currentTarget.value as Wanted)}>
          {LAYOUTS.map((layout) => <option key={layout} value={layout}>{ROWS[layout]}</option>)}
        </select>
        <button aria-pressed={withinOnly.value} onClick={toggleWithin} title="Only requests that were here within the window (w)">In window</button>
        <button aria-pressed={folding.value} onClick={toggleFolding} title="Fold times in which nothing is queued or computed (g)">Fold idle</button>
        {current.value?.recording.live && (
          <button aria-pressed={following.value} onClick={toggleFollowing} title="Keep the newest in sight (f)">Follow</button>
        )}
      </span>
    </div>
  );
}

function shownOf(): string {
  const total = trace.value?.lanes.length ?? 0;
  const shown = lanes.value.length;
  return shown === total ? `${count(total)} requests` : `${count(shown)} of ${count(total)} requests`;
}

/** How long the window is, without what is folded. */
function lengthOf(): string {
  clock.value;
  const window = timeWindow.value ?? whole();
  const map = timeMap.value;
  return duration(map.draw(window.t1) - map.draw(window.t0));
}
