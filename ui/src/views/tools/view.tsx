// Tools: how long each pauses a request, how well that was predicted, how often it fails, what it costs.
import { useMemo } from "preact/hooks";
import { route, setQuery } from "../../app/router";
import { trace, version } from "../../app/state";
import "../../charts/charts.css";
import { Detail } from "./detail";
import { rowsOf, together } from "./rows";
import { ToolTable } from "./table";
import "./tools.css";

export function ToolsView() {
  const shown = trace.value;
  const made = version.value;
  const rows = useMemo(() => (shown ? rowsOf(shown) : []), [shown, made]);
  if (!shown) return null;
  if (!rows.length) return <NoTools />;
  const picked = route.value.query.tool ?? "";
  const chosen = rows.find((row) => row.tool === picked && picked !== "");
  return (
    <div class="view tools" data-testid="tools">
      <ToolTable rows={rows} picked={chosen?.tool ?? ""} onPick={(tool) => setQuery({ tool: tool === chosen?.tool ? "" : tool })} />
      <Detail row={chosen ?? together(rows)} all={!chosen} />
    </div>
  );
}

function NoTools() {
  return (
    <div class="center">
      <div class="card panel">
        <h2>No tool was called</h2>
        <p>This recording holds neither pauses nor tool calls. Stock schedulers know of no pauses: what they
          simulate is seen in the timeline, and compared under Compare.</p>
      </div>
    </div>
  );
}
