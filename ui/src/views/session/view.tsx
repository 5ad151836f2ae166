// Sessions: the list, and the transcript of the one that is chosen.
import { useMemo } from "preact/hooks";
import { link, route } from "../../app/router";
import { current, nowOf, version } from "../../app/state";
import "../../charts/charts.css";
import { StateBar, StateLegend } from "../../charts/statebar";
import { blockSeconds, brief, counted, day, duration } from "../../format";
import type { Recording } from "../../model/records";
import type { Trace } from "../../model/trace";
import { saidOf } from "../../model/who";
import { WaitsOfRuns } from "../../people/view";
import { Tokens } from "../../tokens/view";
import { visible } from "./content";
import { type Item, find, itemsOf } from "./items";
import { SessionList, loopSaid } from "./list";
import { Refused } from "./refused";
import { RequestView } from "./requests";
import { RunView } from "./run";
import "./session.css";
import { textIn } from "./transcript";

export function SessionView() {
  const loaded = current.value;
  const made = version.value;
  const now = loaded ? nowOf(loaded) : 0;
  const items = useMemo(() => (loaded ? itemsOf(loaded.trace, now) : []), [loaded, made]);
  if (!loaded) return null;
  const id = route.value.path[0] ?? "";
  const picked = id ? find(items, id) : undefined;
  const own = picked && loaded.trace.partOf(picked.sessions[0]?.id ?? picked.runs[0]?.id ?? picked.id);
  return (
    <div class={picked ? "session chosen" : "session"} data-testid="session">
      <SessionList items={items} picked={picked} trace={loaded.trace} />
      {picked && own && <Detail item={picked} trace={own} recording={loaded.recording} version={made} now={Math.min(now, own.cut)} />}
      {id !== "" && !picked && (
        <div class="view"><Refused trace={loaded.trace} id={id} /><p class="note" role="status">This recording has no session, run or request called {visible(id)}. Choose one from the list.</p></div>
      )}
    </div>
  );
}

interface Shown {
  item: Item;
  trace: Trace;
  recording: Recording;
  version: number;
  now: number;
}

function Detail({ item, trace, recording, version: made, now }: Shown) {
  return (
    <div class="view session-detail" data-testid="session-detail" key={item.id}>
      <header class="session-head">
        <h2 class={item.title ? "" : "mono"}>{visible(item.title || item.id)}</h2>
        <span class="facts">
          {item.title && <span class="mono" title={visible(item.id)}>{visible(brief(item.id, 24))}</span>}
          {saidOf(item.who) && <span data-testid="who">by <b>{visible(saidOf(item.who))}</b></span>}
          {item.who.answer && <span class="mono" title={`The answer's id: ${visible(item.who.answer)}`}>{visible(brief(item.who.answer, 20))}</span>}
          {item.who.request && <span class="mono" title={`X-Request-Id: ${visible(item.who.request)}`}>{visible(brief(item.who.request, 16))}</span>}
          {item.server && <span data-testid="session-server">on <b>{visible(item.server)}</b></span>}
          <span>arrived {day(item.start)}</span>
          <span>{item.end === null ? <>open for <b>{duration(now - item.start)}</b></> : <b>{duration(item.end - item.start)}</b>}</span>
          {item.sessions.length === 1 && item.sessions.map((session) => session.ttft !== null && (
            <span key={session.id} title="In the engine: from its arrival until its first token was there">TTFT <b>{duration(session.ttft)}</b></span>
          ))}
          {item.regret !== null && <span>regret <b>{blockSeconds(item.regret)}</b></span>}
          {item.sessions.some((session) => trace.outcomes.sessions.has(session.id)) && (
            <a href={link("predictions", [item.sessions[0].id])}>predictions</a>
          )}
          {item.errors > 0 && <a class="bad" data-testid="failures" href={link("errors")}>{item.failures}</a>}
        </span>
      </header>
      {item.loops.map((loop) => <p key={loop.tool} class="note" data-testid="loop-note">{loopSaid(loop)}</p>)}
      <WaitsOfRuns runs={item.runs} />
      <Tokens session={textIn(item.runs.at(-1)?.span.attributes, "gen_ai.response.id") ?? ""} />
      {item.seconds.length > 0 && (
        <div class="session-states">
          <StateBar seconds={item.seconds} />
          <StateLegend seconds={item.seconds} />
        </div>
      )}
      {item.runs.length > 0 && !captured(item) && <NoContent recording={recording} />}
      {item.runs.map((run) => <RunView key={run.id} run={run} trace={trace} version={made} now={now} />)}
      {item.runs.length === 0 && (
        <>
          <p class="muted small">{without(recording, item)}</p>
          {item.sessions.flatMap((session) => session.lanes).filter((lane) => lane.length > 0).map((lane) => (
            <RequestView key={lane.id} lane={lane} trace={trace} version={made} now={now} />
          ))}
        </>
      )}
    </div>
  );
}

function without(recording: Recording, item: Item): string {
  const calls = counted(item.calls, "call");
  if (recording.source === "simulate") return `A simulated session has no messages; this is what its requests did, with ${calls}.`;
  return `No run of the runtime is recorded for this session, so it has no transcript; this is what its requests did, with ${calls}.`;
}

const CONTENT = ["gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.tool.call.arguments", "gen_ai.tool.call.result"];

function captured(item: Item): boolean {
  const spans = item.runs.flatMap((run) => [...run.turns, ...run.calls]);
  return spans.some((span) => CONTENT.some((name) => span.attributes?.[name] !== undefined));
}

function NoContent({ recording }: { recording: Recording }) {
  if (recording.content) return null;
  return (
    <p class="note" data-testid="no-content">
      Messages, arguments and results were not captured; start <code>caesura serve --trace-content</code>, or
      set <code>content = true</code> under <code>[trace]</code> in caesura.toml, to have them here.
    </p>
  );
}
