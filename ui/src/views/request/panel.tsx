// The selected request beside the timeline: where its time went, how fast it decoded, its pauses, its waits.
import { useState } from "preact/hooks";
import { link } from "../../app/router";
import { current, nowOf, select, trace, version } from "../../app/state";
import { count, duration, number } from "../../format";
import type { Pause } from "../../model/pause";
import { WaitsForYou } from "../../people/view";
import { PauseCard } from "../decision/pausecard";
import { handlingOf } from "../decision/words";
import { visible } from "../session/content";
import { Followed } from "../session/difference";
import { factsOf } from "../timeline/rows/facts";
import { choose, goTo, selectedPause } from "../timeline/store";
import { accountOf } from "./account";
import { AccountTable, unknownOf } from "./accounttable";
import { Cause } from "./cause";
import { perTokenOf, stretchesOf } from "./decode";
import { Decoding } from "./decoding";
import { LaneTable, StateBar } from "./lanetable";
import "./request.css";
import { Waits, endOf } from "./waits";

export function RequestPanel({ request }: { request: string }) {
  version.value;
  const loaded = current.value;
  const lane = trace.value?.byRequest.get(request);
  if (!loaded || !lane) {
    return (
      <aside class="dc-panel" aria-label="Selected request">
        <Head request={request} />
        <p class="small soft dc-body">This recording has no such request.</p>
      </aside>
    );
  }
  const own = loaded.trace.partOf(request);
  const now = Math.min(nowOf(loaded), own.cut);
  const account = accountOf(own, lane, now);
  const stretches = stretchesOf(own, lane, now);
  const unknown = unknownOf(account, own);
  const pauses = own.pausesOf(request);
  const pause = pauses.find((one) => one.at === selectedPause.value);
  return (
    <aside class="dc-panel" aria-label={`Request ${request}`}>
      <Head request={request} server={loaded.trace.parts.length > 1 ? own.server : ""} question={factsOf(own, lane).question} />
      <div class="dc-body">
        <Cause trace={own} lane={lane} account={account} now={now} />
        <Followed attributes={own.spans.turnOf(request)?.attributes} />
        <WaitsForYou request={request} />
        <p class="small soft">
          <b data-testid="request-time">{duration(account.until - account.from)}</b>{account.open && (loaded.recording.live && own.cut === Infinity ? " so far" : " until the recording ended")}{lane.lost && " until its engine died"}, {count(lane.tokens[lane.length - 1])} tokens,{" "}
          <a href={link("session", [lane.session])} data-testid="request-session">{lane.session === lane.id ? "its session" : <>session <span class="mono">{lane.session}</span></>}</a>
        </p>
        <StateBar lane={lane} now={now} />
        <AccountTable account={account} lane={lane} perToken={perTokenOf(stretches)} />
        {unknown && <p class="small soft">{unknown}</p>}
        <LaneTable lane={lane} now={now} />
        <h3>How fast it decoded</h3>
        <Decoding key={request} shown={own} lane={lane} stretches={stretches} />
        <h3>Pauses</h3>
        {pauses.length ? <Pauses pauses={pauses} chosen={pause ?? null} /> : <p class="small soft">It has not paused.</p>}
        {pause && (
          <>
            <div class="row dc-pausehead">
              <h2 class="grow">{pause.tool ?? "Pause"}</h2>
              <a href={link("decision", [pause.request, String(pause.at)])}>Full view</a>
            </div>
            <PauseCard pause={pause} />
          </>
        )}
        <h3>Why it waited</h3>
        <Waits lane={lane} now={now} after={pause ? endOf(pause) : null} />
      </div>
    </aside>
  );
}

function Head({ request, question = "", server = "" }: { request: string; question?: string; server?: string }) {
  return (
    <header class="dc-head">
      <span class="grow">
        {question && <b title={visible(question)}>{visible(question)}</b>}
        <span class={question ? "mono small soft" : "mono"} title={request}>{request}</span>
        {server && <span class="small soft" data-testid="request-server">on {visible(server)}</span>}
      </span>
      <button class="plain" onClick={() => select("")} aria-label="Close (Esc)" title="Close (Esc)">✕</button>
    </header>
  );
}

const FIRST = 8;

function Pauses({ pauses, chosen }: { pauses: readonly Pause[]; chosen: Pause | null }) {
  const [all, setAll] = useState(false);
  const shown = all ? pauses : pauses.filter((pause, i) => i < FIRST || pause === chosen);
  return (
    <>
      <table class="dc-pauses">
        <thead><tr><th>tool</th><th class="num">expected</th><th class="num">took</th><th>KV</th><th class="num" title="Block-seconds beyond the cheapest alternative in hindsight. A dash: nobody wanted its memory">regret, blk·s</th></tr></thead>
        <tbody>
          {shown.map((pause) => (
            <tr key={pause.at} aria-selected={pause === chosen}>
              <td>
                <button class="dc-link" onClick={() => (pause === chosen ? choose(pause.request) : goTo(pause))}>
                  ◆ {pause.tool ?? "unknown"}
                </button>
              </td>
              <td class="num">{duration(pause.predictedSeconds)}</td>
              <td class="num">{pause.seconds === null ? "open" : duration(pause.seconds)}</td>
              <td>{handlingOf(pause)}</td>
              <td class="num">{number(pause.regret)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {shown.length < pauses.length && <button class="plain" onClick={() => setAll(true)}>Show all {count(pauses.length)}</button>}
    </>
  );
}
