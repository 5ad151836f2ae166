// A decision in full, or all of them where the address names none.
import { link, route } from "../../app/router";
import { current, nowOf, trace, version } from "../../app/state";
import { duration, moment } from "../../format";
import type { Pause } from "../../model/pause";
import { around } from "../timeline/zoom";
import "./decision.css";
import { PauseList } from "./list";
import { PauseCard } from "./pausecard";
import { Waits, endOf } from "../request/waits";

export function DecisionView() {
  version.value;
  const [request, at] = route.value.path;
  if (!request) return <PauseList />;
  const pause = trace.value?.pauseAt(request, Number.parseFloat(at));
  if (!pause) {
    return (
      <div class="view">
        <h2>No such pause</h2>
        <p class="soft">
          This recording has no pause of <code>{request}</code> at that time. <a href={link("decision")}>Show all decisions.</a>
        </p>
      </div>
    );
  }
  return <Decision pause={pause} />;
}

function Decision({ pause }: { pause: Pause }) {
  const loaded = current.value!;
  const now = nowOf(loaded);
  const lane = loaded.trace.byRequest.get(pause.request);
  const pauses = loaded.trace.pausesOf(pause.request);
  const place = pauses.indexOf(pause);
  const { t0, t1 } = around(pause.at, pause.at + (pause.seconds ?? now - pause.at), 0.5);
  const to = (other: Pause | undefined, name: string) =>
    other && <a href={link("decision", [other.request, String(other.at)])}>{name}</a>;
  return (
    <div class="view dc-view">
      <div class="row">
        <h2>
          {pause.person ? (pause.end ? "Waited for a person" : "Waits for a person") : "Pause"}: {pause.tool ?? "unknown tool"}
        </h2>
        <span class="soft">{pause.seconds === null ? `open for ${duration(now - pause.at)}` : duration(pause.seconds)}, from {moment(pause.at)}</span>
        <span class="grow" />
        {to(pauses[place - 1], "← previous pause")}
        {to(pauses[place + 1], "next pause →")}
        <a href={link("timeline", [], { sel: pause.request, pause: String(pause.at), t0: String(t0), t1: String(t1) })}>On the timeline</a>
        <a href={link("session", [pause.session])}>Session</a>
        <a href={link("decision")}>All decisions</a>
      </div>
      <p class="small soft">
        Request <span class="mono">{pause.request}</span>
        {pause.policy && <>. The policy <b>{pause.policy}</b> decided what to do with its KV.</>}
      </p>
      <div class="panel"><PauseCard pause={pause} wide /></div>
      {lane && (
        <div class="panel dc-waits">
          <h3>Why it waited</h3>
          <Waits lane={lane} now={now} after={endOf(pause)} />
        </div>
      )}
    </div>
  );
}
