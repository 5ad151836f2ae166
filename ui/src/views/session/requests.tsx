// A session without spans: what each of its requests did between its pauses.
import { useMemo } from "preact/hooks";
import { link } from "../../app/router";
import { StateBar, toldOf } from "../../charts/statebar";
import { largest } from "../../charts/stats";
import { brief, count, duration } from "../../format";
import type { Lane } from "../../model/lane";
import type { Trace } from "../../model/trace";
import { PauseChip } from "./chip";
import { type Segment, segmentsOf } from "./segments";

export function RequestView({ lane, trace, version, now }: { lane: Lane; trace: Trace; version: number; now: number }) {
  const segments = useMemo(() => segmentsOf(lane, trace, now), [lane, trace, version, now]);
  const longest = largest(segments.map((segment) => segment.to - segment.from));
  return (
    <section class="run" data-testid="request">
      <header class="run-head">
        <h3 class="plainhead">Request <span class="mono" title={lane.id}>{brief(lane.id, 32)}</span></h3>
        <a class="small" href={link("timeline", [], { sel: lane.id })}>timeline</a>
      </header>
      <ol class="segments">
        {segments.map((segment) => (
          <li key={segment.from}>
            {segment.pause
              ? <PauseChip pause={segment.pause} now={now} />
              : <Stretch segment={segment} longest={longest} />}
          </li>
        ))}
      </ol>
    </section>
  );
}

function Stretch({ segment, longest }: { segment: Segment; longest: number }) {
  const grown = segment.tokensTo - segment.tokensFrom;
  return (
    <div class="segment">
      <span class="segment-bar"><StateBar seconds={segment.seconds} share={Math.max(0.02, (segment.to - segment.from) / longest)} /></span>
      <span class="soft">
        {segment.kind === "pause" ? `paused ${duration(segment.to - segment.from)}, of which there is no record` : toldOf(segment.seconds)}
        {segment.open && ", goes on"}
      </span>
      <span class="muted">
        {segment.kind === "segment" && grown > 0 && `context ${count(segment.tokensFrom)} → ${count(segment.tokensTo)} tokens`}
      </span>
    </div>
  );
}
