// Compare: two recordings side by side, in figures, over time, and session by session.
import { useEffect, useMemo } from "preact/hooks";
import { param } from "../../app/address";
import { route, setQuery } from "../../app/router";
import { labelOf } from "../../app/recordings/words";
import { nameOf } from "../../app/sharing/named";
import { type Loaded, current, other, recordings, version } from "../../app/state";
import "../../charts/charts.css";
import { counted } from "../../format";
import type { Recording } from "../../model/records";
import { figuresOf } from "../session/figures";
import "../memory/memory.css";
import { comparable, differences, unequal, unlikeSources } from "./about";
import { WhatIf } from "../../whatif/view";
import "./compare.css";
import { Differing, LeftOut } from "./differing";
import { Headline } from "./headline";
import { match, populationOf } from "./match";
import { measure } from "./metrics";
import { Multiples } from "./multiples";
import { Requests } from "./requests";
import { Windows } from "./windows";

const OF = [["recordings", "Recordings"], ["requests", "Two requests"], ["windows", "Two windows"]] as const;
const of = param<(typeof OF)[number][0]>("cmp.of", "recordings");

export function CompareView() {
  const a = current.value;
  const b = other.value;
  const list = recordings.value;
  const against = route.value.query.with ?? "";
  const whole = of.value === "recordings";
  const next = list.find((one) => one !== a?.recording);
  useEffect(() => {
    if (a && against === "" && next && whole) setQuery({ with: nameOf(next) });
  }, [a, against, next, whole]);
  if (!a) return null;
  return (
    <div class="view compare" data-testid="compare">
      <div class="compare-of" role="group" aria-label="What is compared">
        {OF.map(([name, title]) => <button key={name} aria-pressed={of.value === name} onClick={() => (of.value = name)}>{title}</button>)}
      </div>
      {whole && !next ? <OnlyOne /> : <Chosen a={a} b={b} list={list} />}
      <WhatIf />
    </div>
  );
}

function Chosen({ a, b, list }: { a: Loaded; b: Loaded | null; list: Recording[] }) {
  // The count of batches makes what follows change with the traces.
  const made = version.value;
  // Requests and windows may be of one recording.
  const side = b ?? a;
  const loading = a.state === "loading" || side.state === "loading";
  return (
    <>
      <Sides a={a.recording} b={b?.recording ?? null} list={list} whole={of.value === "recordings"} />
      {of.value === "recordings" && (b ? <Both a={a} b={b} /> : <p class="muted" role="status">Choose the recording that is to be B.</p>)}
      {of.value !== "recordings" && loading && <p class="muted" role="status">Reading the recordings…</p>}
      {of.value === "requests" && !loading && <Requests a={a} b={side} version={made} />}
      {of.value === "windows" && !loading && <Windows a={a} b={side} version={made} />}
    </>
  );
}

function Both({ a, b }: { a: Loaded; b: Loaded }) {
  // The count of batches makes what follows change with the traces.
  const made = version.value;
  const failed = [a, b].find((side) => side.state === "error");
  if (failed) return <p class="note bad" role="alert">{failed.error}</p>;
  // Figures of half a recording would only mislead.
  if (a.state === "loading" || b.state === "loading") return <p class="muted" role="status">Reading the recordings…</p>;
  if (b.trace.empty) return <p class="muted" role="status">The recording of B has no entries. Choose another one.</p>;
  return (
    <>
      {[a, b].some((side) => side.recording.live) && (
        <p class="note" role="status">A recording is still growing: its figures are those of what has come so far.</p>
      )}
      <Unequal a={a.recording} b={b.recording} />
      <Compared a={a} b={b} version={made} />
    </>
  );
}

function Compared({ a, b, version: made }: { a: Loaded; b: Loaded; version: number }) {
  const [matched, population] = useMemo(() => {
    const sessions = [figuresOf(a.trace, a.trace.to), figuresOf(b.trace, b.trace.to)] as const;
    const found = match(...sessions);
    return [found, populationOf(found, ...sessions)] as const;
  }, [a, b, made]);
  const figures = useMemo(() => {
    if (matched.by === "none") return { a: measure(a.recording, a.trace), b: measure(b.recording, b.trace) };
    const [inA, inB] = [new Set(population.both.map((pair) => pair.a.id)), new Set(population.both.map((pair) => pair.b.id))];
    return { a: measure(a.recording, a.trace, { compared: inA }), b: measure(b.recording, b.trace, { compared: inB }) };
  }, [a, b, made]);
  const coarse = [a, b].some((side) => side.recording.about.lanes === "coarse");
  // As many sessions, in their order, are the same ones only where both recordings say so.
  const same = matched.by === "name" || (matched.by === "arrival" && Boolean(a.recording.about.workload));
  const judged = same && comparable(a.recording, b.recording);
  return (
    <div class="compare-grid">
      <section class="panel">
        <h3>Figures</h3>
        {matched.by === "none" && (
          <p class="note" data-testid="unlike">A and B did not serve the same sessions: their figures do not say which is better.</p>
        )}
        {matched.by !== "none" && <LeftOut of={population} />}
        <Headline a={figures.a} b={figures.b} judged={judged} />
        <p class="muted small">
          Point at a name for what it means. Differences under 0.5 % count as the same.
          {coarse && (
            <> <b>Coarse lanes</b>: vLLM's own scheduler writes no records. Its lanes are made from when each
              segment was sent, began to answer and ended; in what state it waited, and why, is not known.</>
          )}
        </p>
      </section>
      <div class="compare-side">
        <section class="panel">
          <h3>Over time since the beginning</h3>
          <Multiples a={a.trace} b={b.trace} version={made} />
        </section>
        <section class="panel">
          <h3>Sessions that differ most</h3>
          <Differing matched={matched} a={a.recording} b={b.recording} judged={judged} />
        </section>
      </div>
    </div>
  );
}

function Sides({ a, b, list, whole }: { a: Recording; b: Recording | null; list: Recording[]; whole: boolean }) {
  const choose = (name: "rec" | "with", label: string, value: Recording | null) => (
    <label>
      <span class={`badge ${label.toLowerCase()}`}>{label}</span>
      <select value={value ? nameOf(value) : ""} data-testid={`side-${label.toLowerCase()}`}
        onChange={(event) => setQuery({ [name]: event.currentTarget.value, t0: "", t1: "", sel: "" })}>
        {!value && <option value="">{whole ? "choose…" : "the same recording"}</option>}
        {value && label === "B" && !whole && <option value="">the same recording</option>}
        {list.map((one) => <option key={nameOf(one)} value={nameOf(one)}>{labelOf(one, list)}</option>)}
      </select>
    </label>
  );
  return (
    <div class="compare-sides">
      {choose("rec", "A", a)}
      {choose("with", "B", b)}
      {b && <button onClick={() => setQuery({ rec: nameOf(b), with: nameOf(a), t0: "", t1: "", sel: "" })}>Swap A and B</button>}
      {b === a && whole && <span class="note">A and B are the same recording.</span>}
    </div>
  );
}

/** What the recordings say of themselves, and a warning where more than the policy differs. */
function Unequal({ a, b }: { a: Recording; b: Recording }) {
  const found = differences(a, b);
  const wrong = unequal(found);
  return (
    <>
      {unlikeSources(a, b) && (
        <p class="note" data-testid="unlike-sources">
          One of these is real, the other simulated: they differ by the error of the simulation, whatever the policy.
          “What if” below replays the recorded policy too, and compares the replays.
        </p>
      )}
      {wrong.length > 0 && (
        <p class="note" data-testid="unequal">
          More than the policy differs ({wrong.join(", ")}): the figures do not say which policy is better.
        </p>
      )}
      {found.length > 0 && (
        <details class="compare-about" open={found.length <= 8}>
          <summary class="small soft">{found.length === 1 ? "1 setting differs" : counted(found.length, "settings differ", "settings differ")}</summary>
          <dl>
            {found.map((one) => (
              <div key={one.name}><dt>{one.name}</dt><dd><b class="mark a">A</b> {one.a}</dd><dd><b class="mark b">B</b> {one.b}</dd></div>
            ))}
          </dl>
        </details>
      )}
    </>
  );
}

function OnlyOne() {
  return (
    <div class="center">
      <div class="card panel">
        <h2>There is only one recording</h2>
        <p>To compare two runs, record another, or simulate one workload under several policies and put them into one page:</p>
        <pre>caesura simulate -p stock,caesura --rate 2 --trace --out report/</pre>
        <p>The page is then <code>report/trace.html</code>.</p>
      </div>
    </div>
  );
}
