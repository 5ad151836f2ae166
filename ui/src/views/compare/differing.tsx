// The sessions that fared most differently, with the way to both timelines.
import { link } from "../../app/router";
import { nameOf } from "../../app/sharing/named";
import { StateBar } from "../../charts/statebar";
import { largest } from "../../charts/stats";
import { brief, count, counted, duration } from "../../format";
import { isPause } from "../../model/lane";
import type { Recording } from "../../model/records";
import { visible } from "../session/content";
import type { SessionFigures } from "../session/figures";
import { type Matched, type Pair, type Population, furthest } from "./match";

const MOST = 15;
const HOW = {
  name: "Matched by their ids.",
  arrival: "Matched by the order of their arrival: right only if both recordings are of the same workload.",
  none: "",
};

/** `judged`: say which sessions were faster, which only like machines and like sessions can show. */
export function Differing({ matched, a, b, judged }: { matched: Matched; a: Recording; b: Recording; judged: boolean }) {
  if (matched.by === "none") {
    return <p class="muted" data-testid="unmatched">Sessions cannot be matched: they have other ids in B, and not as many arrived.</p>;
  }
  const pairs = furthest(matched.pairs, MOST);
  const slower = matched.pairs.filter((pair) => (pair.difference ?? 0) > 0).length;
  const faster = matched.pairs.filter((pair) => (pair.difference ?? 0) < 0).length;
  return (
    <>
      <p class="small soft" data-testid="matched">
        {counted(matched.pairs.length, "session")} in both. {HOW[matched.by]}
        {judged && <> In B <b>{count(faster)}</b> were faster and <b>{count(slower)}</b> slower than in A.</>}
      </p>
      {pairs.length > 0 && <Pairs pairs={pairs} a={a} b={b} judged={judged} />}
    </>
  );
}

/** How many sessions were left out of the latencies, and why. */
export function LeftOut({ of: { both, onlyA, onlyB, neither, unmatched } }: { of: Population }) {
  const left = [
    onlyA && `${counted(onlyA, "session")} that ended only in A`, onlyB && `${counted(onlyB, "session")} that ended only in B`,
    neither && `${counted(neither, "session")} that ended in neither`, unmatched && `${counted(unmatched, "session")} that the other does not have`,
  ].filter(Boolean) as string[];
  return (
    <p class={left.length ? "note" : "muted small"} data-testid="left-out">
      Latencies and times are of the {counted(both.length, "session")} that ended in both.{" "}
      {left.length ? `Left out: ${left.join(", ")}.` : "None is left out."}
    </p>
  );
}

function Pairs({ pairs, a, b, judged }: { pairs: Pair[]; a: Recording; b: Recording; judged: boolean }) {
  const longest = largest(pairs.flatMap((pair) => [pair.a.latency ?? 0, pair.b.latency ?? 0]));
  return (
    <table>
      <thead><tr>
        <th>session</th><th class="num">latency in A</th><th class="num">in B</th><th class="num">B − A</th>
        <th>latency by state, A over B</th><th>timelines</th>
      </tr></thead>
      <tbody>
        {pairs.map((pair) => (
          <tr key={pair.a.id} data-testid="pair">
            <th scope="row"><a class="mono" title={visible(pair.a.id)} href={link("session", [pair.a.id])}>{visible(brief(pair.a.id, 24))}</a></th>
            <td class="num">{duration(pair.a.latency)}</td>
            <td class="num">{duration(pair.b.latency)}</td>
            <td class="num">{(pair.difference ?? 0) > 0 ? "+" : ""}{duration(pair.difference)}{judged && ((pair.difference ?? 0) > 0 ? ", slower" : ", faster")}</td>
            <td class="pairbars">
              <StateBar seconds={busy(pair.a)} share={(pair.a.latency ?? 0) / longest} />
              <StateBar seconds={busy(pair.b)} share={(pair.b.latency ?? 0) / longest} />
            </td>
            <td><a href={timeline(a, b, pair.a)}>A</a> <a href={timeline(b, a, pair.b)}>B</a></td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** What counts as latency: all but the time that tools took. */
const busy = (session: SessionFigures): Float64Array =>
  session.seconds.map((each, code) => (isPause(code) ? 0 : each));

const lasted = (session: SessionFigures): number => (session.end ?? session.start) - session.start;

function timeline(recording: Recording, against: Recording, session: SessionFigures): string {
  const room = Math.max(lasted(session) * 0.1, 0.05);
  return link("timeline", [], {
    rec: nameOf(recording), with: nameOf(against), sel: session.lanes[0]?.id ?? "",
    t0: (session.start - room).toFixed(6), t1: ((session.end ?? session.start) + room).toFixed(6),
  });
}
