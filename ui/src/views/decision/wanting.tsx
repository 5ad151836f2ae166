// Who wanted the memory of a pause, and for how long.
import { link } from "../../app/router";
import { count, counted, duration } from "../../format";
import type { Pause } from "../../model/pause";
import { Called } from "../session/called";
import { around } from "../timeline/zoom";

/** Who wanted it, in a table's cell: the request that lacked blocks longest, and how many more. */
export function WantedBy({ pause }: { pause: Pause }) {
  const [first] = pause.wantedBy;
  if (pause.wantedSeconds === null || pause.pricedOtherwise) return <span class="muted">–</span>;
  if (pause.needless) return <span class="muted" title="Memory was free throughout, and it was loaded or computed again all the same.">given up needlessly</span>;
  if (pause.wantedSeconds === 0) return <span class="muted">nobody</span>;
  if (!first) return <span class="muted" title="Requests used blocks that paused ones had given up. None had to wait.">nobody waited</span>;
  const more = pause.wantedRequests - 1;
  return (
    <span title={pause.wantedBy.map(([request, seconds]) => `${request}: ${duration(seconds)}`).join("\n")}>
      <a href={waiting(first[0], pause)}><Called request={first[0]} most={24} /></a>
      {more > 0 && <span class="muted"> and {count(more)} more</span>}
    </span>
  );
}

/** The same as a sentence. */
export function Wanting({ pause }: { pause: Pause }) {
  const { wantedSeconds: seconds, wantedBy: rows, wantedRequests: requests } = pause;
  if (seconds === null) return null;
  if (seconds === 0) return <p class="small">Memory was free throughout, so giving it up was needless.</p>;
  const time = `for ${duration(seconds)} of ${duration(pause.wholeSeconds)}`;
  if (!rows.length) {
    return <p class="small">Nobody waited for blocks. But {time} others used what paused requests had given up; had all been kept, they would have waited.</p>;
  }
  return (
    <p class="small">
      Others wanted its memory {time}. {counted(requests, "request")} waited for blocks meanwhile:{" "}
      {rows.map(([request, lacked], i) => (
        <span key={request}>
          {i > 0 && ", "}<a href={waiting(request, pause)}><Called request={request} /></a> for {duration(lacked)}
        </span>
      ))}
      {requests > rows.length && ` and ${count(requests - rows.length)} more`}.
    </p>
  );
}

/** The timeline, with a request that waited during a pause. */
function waiting(request: string, pause: Pause): string {
  const { t0, t1 } = around(pause.at, pause.at + (pause.wholeSeconds ?? 1), 0.2);
  return link("timeline", [], { sel: request, t0: String(t0), t1: String(t1) });
}
