// What is said about the state or the mark under the pointer.
import { count, duration, moment } from "../../format";
import { ENDED, PERSON, STATES, WAITING } from "../../model/lane";
import { WaitsLine } from "../../people/view";
import { current, nowOf } from "../../app/state";
import { lackedOf } from "../request/lacks";
import { PauseSplit } from "../request/pausesplit";
import { visible } from "../session/content";
import { GUTTER } from "./frame";
import { pauseDuring } from "./hit";
import { labelOf } from "./rows/facts";
import { type Hover, hover } from "./store";
import { STATE_NAMES } from "./shape";

export function Tooltip() {
  const found = hover.value;
  const loaded = current.value;
  if (!found || !loaded || found.x < GUTTER) return null;
  const row = found.lane.rowAt(found.time);
  if (!found.mark && (row < 0 || found.lane.kv[row] === ENDED)) return null;
  const label = labelOf(loaded.trace, found.lane);
  const right = found.x > innerWidth * 0.6;
  const style = {
    [right ? "right" : "left"]: `${right ? Math.max(0, (document.querySelector(".tl-scroller")?.clientWidth ?? 0) - found.x + 14) : found.x + 14}px`,
    top: `${found.y + 16}px`,
  };
  return (
    <div class="tl-tip" style={style} role="presentation">
      {label !== found.lane.id && <b class="tl-tip-label">{label}</b>}
      <div class="mono tl-tip-id">{found.lane.id}</div>
      {loaded.trace.parts.length > 1 && <div class="soft">on {visible(loaded.trace.partOf(found.lane.id).server)}</div>}
      {row >= 0 && <StateLines found={found} row={row} now={nowOf(loaded)} live={loaded.recording.live} />}
      <WaitLine found={found} row={row} />
      <PauseLines found={found} />
      <WaitsLine request={found.lane.id} />
    </div>
  );
}

function StateLines({ found: { lane }, row, now, live }: { found: Hover; row: number; now: number; live: boolean }) {
  const name = STATES[lane.state[row]];
  const until = lane.until(row, now);
  const open = row === lane.length - 1 && lane.end === null;
  return (
    <>
      <div class="tl-tip-state">
        <i style={{ background: `var(--state-${name})` }} />
        <b>{STATE_NAMES[name]}</b>
        {lane.state[row] === PERSON && <span class="muted">({STATE_NAMES[STATES[lane.kv[row]]]})</span>}
        {name !== "ended" && <span>{duration(until - lane.at[row])}{open && (live && lane.cut === Infinity ? " so far" : " until the recording ended")}</span>}
      </div>
      <div class="muted">since {moment(lane.at[row])}</div>
      {name !== "ended" && (
        <div>{count(lane.tokens[row])} tokens, {count(lane.blocks[row])} blocks{lane.host[row] ? `, ${count(lane.host[row])} on the host` : ""}</div>
      )}
    </>
  );
}

/** What a waiting request lacked most often. */
function WaitLine({ found: { lane, time }, row }: { found: Hover; row: number }) {
  if (row < 0 || lane.kv[row] !== WAITING) return null;
  const wait = current.peek()?.trace.waitAt(lane.id, time);
  const [most] = lackedOf(wait?.lacked);
  return most ? <div>lacked {most.what}</div> : null;
}

function PauseLines({ found }: { found: Hover }) {
  const pauses = current.peek()?.trace.pausesOf(found.lane.id) ?? [];
  const pause = found.mark ?? pauseDuring(pauses, found.time);
  if (!pause) return null;
  return (
    <div class="tl-tip-pause">
      <b>{pause.tool ?? "pause"}</b>{" "}
      expected {duration(pause.predictedSeconds)}, {pause.seconds === null ? "still open" : `took ${duration(pause.seconds)}`}
      <PauseSplit pause={pause} line />
    </div>
  );
}
