// The slowest and the strangest requests of a stretch, each with the sentence that says why.
import { useMemo } from "preact/hooks";
import { toggle } from "../../app/address";
import { StateBar } from "../../charts/statebar";
import { duration, number } from "../../format";
import type { Cause } from "../../causes/causes";
import { type Request, lengthOf } from "../../causes/figures";
import { type Strange, strangest } from "../../causes/strange";
import { bestPace, toldOf } from "../../causes/told";
import { visible } from "../session/content";
import { labelOf } from "../session/called";
import type { Shown } from "./shown";
import { momentOf } from "./slowed";

const MOST = 8;
/** Whether the slowest are those that were slow without their tools and people. */
const without = toggle("ov.engine");

export function Slow(shown: Shown) {
  const { trace, ledger, ended, t1, now } = shown;
  const own = without.value;
  const slowest = useMemo(() => {
    const live = ledger.open.filter((request) => request.start < t1 && t1 >= trace.to);
    const took = (request: Request): number => (own ? request.engine : lengthOf(request, now));
    const all = [...ended, ...live].map((request) => ({ request, took: took(request) }));
    return all.sort((a, b) => b.took - a.took).slice(0, MOST).map((one) => one.request);
  }, [ended, ledger, own, t1, now]);
  const odd = useMemo(() => strangest(ended, MOST), [ended]);
  const best = useMemo(() => bestPace(ended), [ended]);
  if (!slowest.length) return <p class="soft">No request ended in this stretch. Mark another one, or show all.</p>;
  return (
    <div class="ov-lists">
      <section class="panel" aria-label="The slowest requests">
        <div class="row">
          <h3 class="grow">The slowest</h3>
          <button aria-pressed={own} onClick={() => (without.value = !own)} title="Rank by the time that they took without their tools and people">Without tools</button>
        </div>
        <ol class="ov-requests" data-testid="slowest">
          {slowest.map((request) => <Row key={request.lane.id} {...shown} request={request} best={best} />)}
        </ol>
      </section>
      <section class="panel" aria-label="The strangest requests">
        <h3 title="Furthest from the median of requests with as many pauses and about as many tokens, in median deviations of logarithms; at least 1.5 times off, among 8 at least">The strangest, for their size</h3>
        {odd.length === 0 && <p class="small soft">None took much more or less than others of its size, or too few are alike to say so.</p>}
        <ol class="ov-requests" data-testid="strangest">
          {odd.map((one) => <Row key={one.request.lane.id} {...shown} request={one.request} best={best} odd={one} />)}
        </ol>
      </section>
    </div>
  );
}

function Row({ trace, ledger, now, request, best, odd }: Shown & { request: Request; best: number | null; odd?: Strange }) {
  const { lane } = request;
  const label = labelOf(trace, lane);
  const { sentence, first } = useMemo(() => toldOf(request, trace, ledger, now, best), [request, trace.version, best]);
  const end = request.end ?? Math.min(now, lane.cut);
  return (
    <li data-testid="ov-request">
      <a class={label.bare ? "mono ov-label" : "ov-label"} title={visible(lane.id)} href={momentOf(lane.id, { from: request.start, until: end })}>{label.text}</a>
      <StateBar seconds={request.seconds} />
      <a class="ov-why" href={first ? momentOf(lane.id, first.longest, pauseOf(trace, lane.id, first)) : momentOf(lane.id, { from: request.start, until: end })}>{sentence}</a>
      {odd && <span class="small muted">{timesOf(odd)}</span>}
    </li>
  );
}

/** The beginning of the pause that a cause is, for the address; "" of what is no pause. */
function pauseOf(trace: Shown["trace"], request: string, { kind, longest }: Cause): string {
  if (kind !== "tool" && kind !== "person") return "";
  const pause = trace.pauseAt(request, longest.from);
  return pause ? String(pause.at) : "";
}

const timesOf = ({ times, usual }: Strange): string => times >= 1
  ? `${number(times)} times as long as the usual ${duration(usual)} of its size`
  : `${number(1 / times)} times as quick as the usual ${duration(usual)} of its size`;
