// Tools: how long each pauses a request, how well that was predicted, how often it fails, what it costs.
import { useMemo } from "preact/hooks";
import { route, setQuery } from "../../app/router";
import { current, trace, version } from "../../app/state";
import "../../charts/charts.css";
import { Detail } from "./detail";
import { useMeasured } from "../overview/paced";
import type { Trace } from "../../model/trace";
import { type ToolRow, rowsOf, together } from "./rows";
import { ToolTable } from "./table";
import "./tools.css";

/** Every pause is looked at for the distributions: of a live recording this often, in milliseconds. */
const PACE = 2000;

export function ToolsView() {
  const shown = trace.value;
  const made = useMeasured(version.value, PACE);
  const rows = useMemo(() => (shown ? rowsOf(shown) : []), [shown, made]);
  const picked = route.value.query.tool ?? "";
  return useMemo(() => shown && (rows.length ? <Tools shown={shown} rows={rows} picked={picked} /> : <NoTools />), [shown, rows, picked]);
}

function Tools({ shown, rows, picked }: { shown: Trace; rows: ToolRow[]; picked: string }) {
  const chosen = rows.find((row) => row.tool === picked && picked !== "");
  const row = useMemo(() => chosen ?? together(shown, rows), [rows, chosen]);
  return (
    <div class="view tools" data-testid="tools">
      <ToolTable rows={rows} picked={chosen?.tool ?? ""} onPick={(tool) => setQuery({ tool: tool === chosen?.tool ? "" : tool })} />
      <Detail row={row} all={!chosen} />
    </div>
  );
}

function NoTools() {
  const coarse = current.value?.recording.about.lanes === "coarse";
  return (
    <div class="center">
      <div class="card panel">
        <h2>{coarse ? "Nothing is known of tools" : "No tool was called"}</h2>
        <p>{coarse
          ? "vLLM's own scheduler knows of no pauses: its requests end at a call and begin anew behind it. When they were away is in the timeline, and Compare sets it beside other policies."
          : "This recording holds neither pauses nor tool calls."}</p>
      </div>
    </div>
  );
}
