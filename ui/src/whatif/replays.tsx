// What replays came to: each policy against the replay of the recorded one, and that one against what was.
import { link } from "../app/router";
import { count, counted, duration, ratio } from "../format";
import { visible } from "../views/session/content";
import type { Choice, Figures, Job, Replay } from "./server";

/** Latencies that differ by less count as the same. */
const SAME = 0.005;
/** A replay that is off by more than this factor, or its inverse, says little of seconds. */
const FAR = 1.25;

export function Replays({ job }: { job: Job }) {
  const [first, ...others] = job.replays;
  return (
    <>
      <p role="status">
        Done: {counted(job.compared, "session")} compared, which ended in the recording and in every replay.
        {leftOut(job) && <> <span data-testid="what-if-left-out">{leftOut(job)}</span></>}
      </p>
      {job.doubts.map((one) => <p key={one} class="note">{visible(one)}</p>)}
      <table class="wi-replays" data-testid="what-if-replays">
        <caption class="hidden-visually">Replays by policy</caption>
        <thead><tr>
          <th>policy</th><th class="num">latency, mean</th><th class="num">p50</th><th class="num">p99</th>
          <th class="num">TTFT, mean</th><th class="num">p99</th><th class="num">recomputed</th>
          <th>mean latency against the first row</th><th><span class="hidden-visually">show</span></th>
        </tr></thead>
        <tbody>
          <Row name={<><b>replayed as recorded</b>: {named(first.policies)}</>} said="" replay={first} first={first} />
          {others.map((one) => <Row key={one.result} name={named(one.policies)} said={against(first, one)} replay={one} first={first} />)}
        </tbody>
      </table>
      {others.length === 0 && <p class="soft small">The chosen policy is the recorded one, so nothing else was replayed.</p>}
      {job.was && <ReplayError was={job.was} first={first} />}
    </>
  );
}

function Row({ name, said, replay, first }: { name: preact.ComponentChildren; said: string; replay: Replay; first: Replay }) {
  const side = { rec: String(first.result), sel: "", t0: "", t1: "" };
  const times = [replay.latency_mean, replay.latency_p50, replay.latency_p99, replay.ttft_mean, replay.ttft_p99];
  return (
    <tr>
      <th scope="row">{name}</th>
      {times.map((value, at) => <td key={at} class="num">{duration(value)}</td>)}
      <td class="num">{counted(replay.recomputed, "token")}</td>
      <td>{said}</td>
      <td>
        {replay === first
          ? <a href={link("timeline", [], { ...side, with: "" })}>Open it</a>
          : <a href={link("compare", [], { ...side, with: String(replay.result) })}>Compare both replays</a>}
      </td>
    </tr>
  );
}

/** The recording beside the replay of its own policy, which tells how far any replay can be trusted. */
function ReplayError({ was, first }: { was: Figures; first: Replay }) {
  const off = first.latency_mean && was.latency_mean ? first.latency_mean / was.latency_mean : null;
  const far = off !== null && (off > FAR || off < 1 / FAR);
  return (
    <p class={far ? "note" : "soft small"} data-testid="what-if-error">
      <b>Error of the replay:</b> of the same sessions under the same policy, the recording has a mean latency
      of {duration(was.latency_mean)} (p99 {duration(was.latency_p99)}), its replay {duration(first.latency_mean)}
      {" "}(p99 {duration(first.latency_p99)}){off !== null && <>, {ratio(first.latency_mean!, was.latency_mean!)}</>}.
      {far && " The machine did not run as its calibration says: go by how the replays differ, not by their seconds."}
    </p>
  );
}

/** How a replay compares with that of the recorded policy. */
export function against(first: Replay, one: Replay): string {
  const [a, b] = [first.latency_mean, one.latency_mean];
  if (!a || b === null || b === undefined) return "";
  const apart = Math.abs(b - a) <= SAME * Math.max(a, b);
  const said = apart ? "the same" : `${ratio(b, a)}, ${b > a ? "slower" : "faster"}`;
  return `${said} (${counted(one.faster, "session")} faster, ${count(one.slower)} slower)`;
}

/** Which sessions are not replayed, and why; empty if all are. */
export function leftOut(job: Job): string {
  const told = Object.entries(job.left_out).map(([why, many]) => `${counted(many, "session")} ${why}`);
  return told.length ? `Not replayed: ${told.join("; ")}.` : "";
}

const named = (policies: Choice): string => visible(Object.entries(policies).map(([what, name]) => `${what} ${name}`).join(", "));
