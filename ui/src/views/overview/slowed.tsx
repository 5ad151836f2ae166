// What slowed a stretch: the seconds of all requests in it, by cause.
import { useMemo } from "preact/hooks";
import { link } from "../../app/router";
import { count, counted, duration, percent } from "../../format";
import type { Piece } from "../../causes/causes";
import { type Slowed, slowedIn } from "../../causes/slowed";
import { CAUSES } from "../../causes/words";
import { visible } from "../session/content";
import { around } from "../timeline/zoom";
import type { Shown } from "./shown";

/** Causes that are listed before the rest is summed up. */
const MOST = 10;

export function SlowedList({ trace, ledger, t0, t1, now }: Shown) {
  const all = useMemo(() => slowedIn(ledger, t0, t1, now), [ledger, trace.version, t0, t1, now]);
  const whole = all.reduce((sum, one) => sum + one.seconds, 0);
  const causes = all.filter((one) => one.kind !== "decode");
  const decode = all.find((one) => one.kind === "decode")?.seconds ?? 0;
  const rest = causes.slice(MOST);
  return (
    <section class="panel ov-slowed" aria-label="What slowed this stretch">
      <h3 title="Seconds of all requests within the stretch, whether they ended there or not; a request that waits while another decodes counts as one second for each">What slowed this stretch</h3>
      {!causes.length && <p class="small soft">Nothing but decoding{decode ? `, which took ${duration(decode)}` : ""}.</p>}
      <ol>
        {causes.slice(0, MOST).map((one) => <Row key={`${one.kind} ${one.name}`} one={one} whole={whole} most={causes[0].seconds} />)}
      </ol>
      {rest.length > 0 && <p class="small muted">and {counted(rest.length, "smaller cause")}, {duration(rest.reduce((sum, one) => sum + one.seconds, 0))}</p>}
      {causes.length > 0 && <p class="small muted">Decoding itself took {duration(decode)} of {duration(whole)} that requests spent here.</p>}
    </section>
  );
}

function Row({ one, whole, most }: { one: Slowed; whole: number; most: number }) {
  const { name, meaning } = CAUSES[one.kind];
  return (
    <li data-testid={`slowed-${one.kind}`}>
      <span class="ov-cause" title={meaning}>{one.name ? `${name} ${visible(one.name)}` : name}</span>
      <span class="ov-bar" aria-hidden="true"><i style={{ width: `${(100 * one.seconds) / most}%` }} /></span>
      <b class="num">{duration(one.seconds)}</b>
      <span class="num muted">{percent(one.seconds / whole)}</span>
      <span class="soft ov-where">
        {counted(one.requests, "request")};{" "}
        <a href={momentOf(one.request.lane.id, one.longest)}>longest {duration(one.longest.until - one.longest.from)}{tokensOf(one)}</a>
      </span>
    </li>
  );
}

const tokensOf = ({ kind, longest }: Slowed): string =>
  (kind === "prefill" || kind === "recompute") && longest.tokens ? `, ${count(Math.round(longest.tokens))} tokens` : "";

/** The address of a moment: the request is selected in the timeline, and the stretch fills most of the window. */
export function momentOf(request: string, { from, until }: Pick<Piece, "from" | "until">, pause = ""): string {
  const { t0, t1 } = around(from, until, 0.6);
  return link("timeline", [], { sel: request, pause, t0: t0.toFixed(6), t1: t1.toFixed(6) });
}
