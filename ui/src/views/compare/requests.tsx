// Two requests side by side: where the time of each went, and what differs most.
import { useMemo } from "preact/hooks";
import { param } from "../../app/address";
import { link } from "../../app/router";
import { nameOf } from "../../app/sharing/named";
import { type Loaded, nowOf, selection } from "../../app/state";
import { largest } from "../../charts/stats";
import { brief, count, counted, duration } from "../../format";
import type { Lane } from "../../model/lane";
import type { Trace } from "../../model/trace";
import { perTokenOf, stretchesOf } from "../request/decode";
import { visible } from "../session/content";
import { questionsOf } from "../session/names";
import { accountsOf, differing, lasted } from "./accounts";

const first = param("cmp.a", "");
const second = param("cmp.b", "");
/** Requests that a field proposes. */
const MOST = 200;

interface Picked {
  lane: Lane | null;
  /** Why there is none. */
  why: string;
}

/** `b` is the recording of the second request, which may be the same one. */
export function Requests({ a, b, version }: { a: Loaded; b: Loaded; version: number }) {
  const said = { a: useMemo(() => questionsOf(a.trace), [a, version]), b: useMemo(() => questionsOf(b.trace), [b, version]) };
  const wanted = first.value || selection.value;
  const one = useMemo(() => pick(a.trace, said.a, wanted), [a, version, wanted]);
  const two = useMemo(() => pick(b.trace, said.b, second.value), [b, version, second.value]);
  return (
    <>
      <div class="compare-sides">
        <Field side="A" loaded={a} said={said.a} text={wanted} change={(text) => (first.value = text)} />
        <Field side="B" loaded={b} said={said.b} text={second.value} change={(text) => (second.value = text)} />
      </div>
      {[one, two].map((picked, at) => picked.why && <p key={at} class="muted small" role="status"><span class={`badge ${"ab"[at]}`}>{"AB"[at]}</span> {picked.why}</p>)}
      {one.lane && two.lane && <Both a={a} b={b} one={one.lane} two={two.lane} said={said} />}
    </>
  );
}

function Field({ side, loaded, said, text, change }: {
  side: "A" | "B"; loaded: Loaded; said: ReadonlyMap<string, string>; text: string; change: (text: string) => void;
}) {
  const id = `requests-${side}`;
  return (
    <label>
      <span class={`badge ${side.toLowerCase()}`}>{side}</span>
      <input type="search" list={id} value={text} placeholder="Id or words of a request" aria-label={`Request ${side}`} data-testid={`request-${side.toLowerCase()}`}
        onChange={(event) => change(event.currentTarget.value.trim())} />
      <datalist id={id}>
        {loaded.trace.lanes.slice(-MOST).map((lane) => <option key={lane.id} value={lane.id}>{visible((said.get(lane.id) ?? "").slice(0, 80))}</option>)}
      </datalist>
    </label>
  );
}

/** The request that a text names: by its id, or by what only its id or question holds. */
export function pick(trace: Trace, said: ReadonlyMap<string, string>, text: string): Picked {
  if (!text) return { lane: null, why: "Choose a request by its id, or by words of what was asked." };
  const exact = trace.laneOf(text);
  if (exact) return { lane: exact, why: "" };
  const words = text.toLowerCase();
  const found = trace.lanes.filter((lane) => lane.length > 0 && `${lane.id} ${said.get(lane.id) ?? ""}`.toLowerCase().includes(words));
  if (found.length === 1) return { lane: found[0], why: "" };
  if (!found.length) return { lane: null, why: `No request of this recording has ${visible(text)} in its id or question.` };
  return { lane: null, why: `${count(found.length)} requests have ${visible(text)} in their ids or questions: type more of one.` };
}

function Both({ a, b, one, two, said }: {
  a: Loaded; b: Loaded; one: Lane; two: Lane; said: { a: ReadonlyMap<string, string>; b: ReadonlyMap<string, string> };
}) {
  const times = { a: lasted(one, nowOf(a)), b: lasted(two, nowOf(b)) };
  const rows = differing(accountsOf(a.trace, one, nowOf(a)), accountsOf(b.trace, two, nowOf(b)));
  const longest = largest(rows.flatMap((row) => [row.a, row.b]), 1e-9);
  const most = rows.at(0);
  const pace = { a: perTokenOf(stretchesOf(a.trace, one, nowOf(a))), b: perTokenOf(stretchesOf(b.trace, two, nowOf(b))) };
  return (
    <section class="panel compare-requests">
      <h3>Where the time went</h3>
      <p data-testid="differs-most">
        <b>A</b> {titled(a, one, said.a)} took <b>{duration(times.a)}</b>, <b>B</b> {titled(b, two, said.b)} <b>{duration(times.b)}</b>.{" "}
        {most && most.a !== most.b ? <>What differs most is <b>{most.name}</b>: {more(most.a, most.b)}.</> : "No account differs."}
      </p>
      <table class="headline" data-testid="accounts">
        <caption class="hidden-visually">Seconds of A and B by account</caption>
        <thead><tr><th>account</th><th class="num"><span class="badge a">A</span></th><th class="num"><span class="badge b">B</span></th><th class="num">B − A</th><th>A over B</th></tr></thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.name}>
              <th scope="row">{visible(row.name)}</th>
              <td class="num">{row.a ? duration(row.a) : "–"}</td>
              <td class="num">{row.b ? duration(row.b) : "–"}</td>
              <td class="num">{signed(row.b - row.a)}</td>
              <td class="accountbars" aria-hidden="true">
                {row.a > 0 && <i class="a" style={{ width: `${(row.a / longest) * 100}%` }} />}
                {row.b > 0 && <i class="b" style={{ width: `${(row.b / longest) * 100}%` }} />}
              </td>
            </tr>
          ))}
          <tr>
            <th scope="row">together</th>
            <td class="num"><b>{duration(times.a)}</b></td><td class="num"><b>{duration(times.b)}</b></td><td class="num">{signed(times.b - times.a)}</td><td />
          </tr>
          <tr>
            <th scope="row">decode, each token</th>
            <td class="num">{duration(pace.a)}</td><td class="num">{duration(pace.b)}</td>
            <td class="num">{pace.a !== null && pace.b !== null ? signed(pace.b - pace.a) : ""}</td><td />
          </tr>
          <tr>
            <th scope="row">context at the end</th>
            <td class="num">{counted(one.tokens[one.length - 1], "token")}</td><td class="num">{counted(two.tokens[two.length - 1], "token")}</td><td /><td />
          </tr>
        </tbody>
      </table>
    </section>
  );
}

function titled(loaded: Loaded, lane: Lane, said: ReadonlyMap<string, string>) {
  const words = said.get(lane.id);
  const query = { rec: nameOf(loaded.recording), sel: lane.id, t0: "", t1: "" };
  return <a href={link("timeline", [], query)} title={visible(lane.id)}>{visible(words ? `“${words.slice(0, 80)}”` : brief(lane.id, 24))}</a>;
}

const signed = (seconds: number): string => (seconds === 0 ? "0" : `${seconds > 0 ? "+" : ""}${duration(seconds)}`);

const more = (a: number, b: number): string => `${duration(Math.abs(b - a))} more in ${b > a ? "B" : "A"}`;

