// The timeline: filters, overview, lanes, and the selected request beside them.
import { useLayoutEffect } from "preact/hooks";
import { selection, timeWindow, trace, version } from "../../app/state";
import { counted } from "../../format";
import { StepStrip } from "../memory/strip";
import { RequestPanel } from "../request/panel";
import { Lanes } from "./canvas";
import { listenToKeys } from "./keys";
import { Legend } from "./legend";
import { Overview } from "./overview";
import { labelOf } from "./rows/facts";
import { showAll } from "./store";
import "./timeline.css";
import { Toolbar } from "./toolbar";
import { Tooltip } from "./tooltip";

export function TimelineView() {
  useLayoutEffect(listenToKeys, []); // with the first frame: a key that was pressed at once was lost
  version.value;
  return (
    <div class="tl">
      <Toolbar />
      <Overview />
      <div class="tl-body">
        <div class="tl-main">
          <Lanes />
          <Tooltip />
          <Outside />
        </div>
        {selection.value && <RequestPanel request={selection.value} />}
      </div>
      <StepStrip />
      <Legend />
      <Spoken />
    </div>
  );
}

/** What the keys have selected, for those who hear the page. */
function Spoken() {
  const lane = trace.value?.byRequest.get(selection.value);
  const pauses = lane ? (trace.value?.pausesOf(lane.id).length ?? 0) : 0;
  return <p class="hidden-visually" role="status">{lane && trace.value ? `Request ${labelOf(trace.value, lane)}, ${counted(pauses, "pause")}` : ""}</p>;
}

/** An address may name a window in which the recording has nothing. */
function Outside() {
  const window = timeWindow.value;
  const shown = trace.value;
  if (!window || !shown || shown.empty || (window.t1 > shown.from && window.t0 < shown.to)) return null;
  return (
    <p class="tl-outside note">
      The recording has nothing at this time. <button onClick={showAll}>Show all of it</button>
    </p>
  );
}
