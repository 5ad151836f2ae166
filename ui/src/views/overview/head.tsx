// Which stretch is shown: two fields, and the way back to all of it.
import { useState } from "preact/hooks";
import { setWindow } from "../../app/state";
import { count, counted, day, duration, isWallClock, moment } from "../../format";
import { visible } from "../session/content";
import type { Shown } from "./shown";
import { cutIn, openAt } from "./summary";
import type { Restart } from "../../model/restarts";

export function Head({ trace, ended, t0, t1, marked, live }: Shown & { marked: boolean; live: boolean }) {
  const open = openAt(trace, t1);
  // At the end of a recording its server was stopped, and with it all that went on.
  const became = live || t1 < trace.to ? "went on" : open === 1 ? "was cut off at its end" : "were cut off at its end";
  const cut = cutIn(trace, t0, t1);
  const from = Math.max(t0, trace.from);
  return (
    <header class="ov-head">
      <h2 aria-live="polite" data-testid="ov-count">
        {counted(ended.length, "request")} ended in this {marked ? "stretch" : "recording"}{open > 0 && `, ${count(open)} ${became}`}{cut > 0 && `, ${count(cut)} cut off when a server ended`}
      </h2>
      <span class="muted small">
        {marked ? `${moment(t0)} to ${moment(t1)}, ${duration(t1 - t0)}` : [isWallClock(from) ? day(from) : "", `${duration(trace.to - trace.from)} recorded`].filter(Boolean).join(" · ")}
      </span>
      <span class="grow" />
      <Stretch key={marked ? `${t0} ${t1}` : "all"} origin={trace.from} t0={t0} t1={t1} />
      <button aria-pressed={!marked} onClick={() => setWindow(null)} data-testid="ov-all">All</button>
    </header>
  );
}

/** The deaths of the engine in a stretch, each in a sentence. */
export function Deaths({ trace, t0, t1, now }: Shown) {
  const died = trace.restarts.all.filter(({ at, seconds }) => at < t1 && (seconds === null ? now : at + seconds) >= t0);
  return died.map((one) => <p key={`${one.server} ${one.at}`} class="note bad" data-testid="death">{toldOf(one, now)}</p>);
}

/** What is said of one death: when and why, what came of it, and of the requests that were in the engine. */
export function toldOf({ at, why, attempts, seconds, state, lanes, server }: Restart, now: number): string {
  const became = {
    down: `it has been down for ${duration(now - at)}`,
    restarted: `it took work again after ${duration(seconds)}${attempts > 1 ? `, in ${count(attempts)} starts` : ""}`,
    "given up": "it was given up",
  }[state];
  const lost = lanes.filter((lane) => lane.lost).length;
  const went = lanes.length - lost;
  const hit = lanes.length
    ? ` ${counted(lanes.length, "request was", "requests were")} in it: ${count(went)} went on in the next one, ${count(lost)} ended with it.`
    : "";
  return `${server ? `${visible(server)}: the` : "The"} engine died at ${moment(at, 0)}${why ? ` (${visible(why)})` : ""}, and ${became}.${hit}`;
}

/** Seconds as a field shows them. */
const told = (seconds: number): string => String(Number(seconds.toFixed(3)));

/** The window as two fields, in seconds since the recording began. */
function Stretch({ origin, t0, t1 }: { origin: number; t0: number; t1: number }) {
  // What was typed stays, while the end of a live recording moves on.
  const [typed, setTyped] = useState<{ from?: string; until?: string }>({});
  const from = typed.from ?? told(t0 - origin);
  const until = typed.until ?? told(t1 - origin);
  const apply = (event: Event): void => {
    event.preventDefault();
    const [first, last] = [Number.parseFloat(from), Number.parseFloat(until)];
    if (last > first) setWindow({ t0: origin + first, t1: origin + last });
  };
  const wrong = !(Number.parseFloat(until) > Number.parseFloat(from));
  return (
    <form class="ov-stretch" onSubmit={apply} title="Seconds since the recording began; dragging over a chart marks a stretch too">
      <label>from <input type="number" step="any" value={from} aria-label="From, in seconds since the recording began"
        onInput={(event) => setTyped({ ...typed, from: event.currentTarget.value })} /></label>
      <label>to <input type="number" step="any" value={until} aria-label="To, in seconds since the recording began"
        aria-invalid={wrong} onInput={(event) => setTyped({ ...typed, until: event.currentTarget.value })} /> s</label>
      <button type="submit" disabled={wrong} title={wrong ? "The end must be later than the beginning" : undefined}>Show</button>
    </form>
  );
}
