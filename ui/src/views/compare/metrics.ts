// The headline figures of a recording, each with what it means or why it cannot be said.
import type { Window } from "../../app/state";
import { mean, quantile, sorted, sum } from "../../charts/stats";
import { above } from "../../model/columns";
import { LOADING, RECOMPUTE, WAITING, isPause } from "../../model/lane";
import type { Recording, StepColumn } from "../../model/records";
import type { Trace } from "../../model/trace";
import { type SessionFigures, figuresOf } from "../session/figures";

/** A figure, or why it cannot be derived. */
export type Figure = { value: number } | { why: string };
export type Unit = "seconds" | "seconds per token" | "per second" | "count" | "tokens" | "blocks" | "block-seconds";

/** What a figure is called and means, and which way is better (null: neither). */
export interface Metric {
  id: string;
  name: string;
  unit: Unit;
  better: "less" | "more" | null;
  definition: string;
}

export const METRICS: readonly Metric[] = [
  { id: "sessions", name: "sessions that ended", unit: "count", better: null,
    definition: "Sessions that arrived and ended within the recording. Warm-up is counted too." },
  { id: "open", name: "sessions cut off", unit: "count", better: "less",
    definition: "Sessions that had not ended when the recording did. They are in no latency." },
  { id: "latency_mean", name: "latency, mean", unit: "seconds", better: "less",
    definition: "Over the compared sessions, which ended on both sides: from a session's arrival to its end, less what its tools took: waiting, loading, prefill, recompute and decode. As the engine saw it: what arrives during a step is seen at its end." },
  { id: "latency_p50", name: "latency, p50", unit: "seconds", better: "less",
    definition: "Half of the sessions had a latency below this." },
  { id: "latency_p99", name: "latency, p99", unit: "seconds", better: "less",
    definition: "99 of 100 sessions had a latency below this; linear between neighbours." },
  { id: "normalized", name: "normalized latency", unit: "seconds per token", better: "less",
    definition: "Median over sessions of latency per decoded token (InferCept, section 5)." },
  { id: "ttft_mean", name: "TTFT, mean", unit: "seconds", better: "less",
    definition: "Time to first token: from a session's arrival until its first token was there." },
  { id: "ttft_p99", name: "TTFT, p99", unit: "seconds", better: "less",
    definition: "99 of 100 sessions had their first token within this time." },
  { id: "sessions_per_second", name: "throughput, sessions", unit: "per second", better: "more",
    definition: "Sessions that ended, by the busy time: while nobody asks for anything, nothing can be served." },
  { id: "tokens_per_second", name: "throughput, decode", unit: "per second", better: "more",
    definition: "Decode tokens of all steps, by the busy time." },
  { id: "busy", name: "busy time", unit: "seconds", better: null,
    definition: "Seconds in which any request was queued, computed or copied. Times in which there was none, or all waited for tools, are left out." },
  { id: "waiting", name: "time spent waiting", unit: "seconds", better: "less",
    definition: "Mean over the sessions that ended of the time in the queue: fresh, preempted, or back from a tool." },
  { id: "pauses", name: "pauses", unit: "count", better: null,
    definition: "Pauses for a tool or a person that have begun." },
  { id: "preserve", name: "… preserved", unit: "count", better: null,
    definition: "Pauses that ended with all of their KV cache still on the device." },
  { id: "discard", name: "… discarded", unit: "count", better: null,
    definition: "Pauses of which some KV cache was neither kept nor on the host at the end." },
  { id: "swap", name: "… swapped", unit: "count", better: null,
    definition: "Pauses of which some KV cache came back from the host." },
  { id: "recomputed", name: "recomputed tokens", unit: "tokens", better: "less",
    definition: "Tokens of all steps that were computed although they had been before." },
  { id: "saved", name: "blocks swapped out", unit: "blocks", better: null,
    definition: "Blocks copied to the host, in all steps." },
  { id: "loaded", name: "blocks swapped in", unit: "blocks", better: null,
    definition: "Blocks loaded back from the host, in all steps." },
  { id: "swapping", name: "time spent swapping in", unit: "seconds", better: "less",
    definition: "Mean over the sessions that ended of the time in which their KV was on its way from the host." },
  { id: "recomputing", name: "time spent recomputing", unit: "seconds", better: "less",
    definition: "Mean over the sessions that ended of the time in which they computed what had been computed before." },
  { id: "regret", name: "regret", unit: "block-seconds", better: null,
    definition: "What all pauses cost beyond the cheapest alternative in hindsight. Held memory counts as far as others wanted it; where nobody did, keeping KV cost nothing." },
  { id: "cost", name: "cost of pauses", unit: "block-seconds", better: null,
    definition: "What all pauses cost: held memory as far as others wanted it, what was recomputed, and loading." },
  { id: "preemptions", name: "preemptions", unit: "count", better: "less",
    definition: "How often a request went from running back to the queue without a pause." },
];

const NO_LANES = "no lanes";
const COARSE = "coarse lanes";
const NO_SESSION = "no session ended";
const NO_STEPS = "not in its steps";
const NO_PAUSES = "no records of pauses";

/** What of a recording is measured; all of it where nothing is given. */
export interface Scope {
  /** Only what happened from `t0` until `t1`: sessions and pauses that began in it, and its steps. */
  window?: Window;
  /** The ids of the sessions whose times are compared; else all that ended. */
  compared?: ReadonlySet<string>;
}

/** The sessions that arrived within a scope's window. */
export function arrivedIn(sessions: readonly SessionFigures[], window?: Window): SessionFigures[] {
  return sessions.filter((one) => !window || (one.start >= window.t0 && one.start < window.t1));
}

/** Return the figures of a recording by their ids. */
export function measure(recording: Recording, trace: Trace, scope: Scope = {}): Record<string, Figure> {
  const { window, compared } = scope;
  const sessions = arrivedIn(figuresOf(trace, trace.to), window);
  const ended = sessions.filter((one) => one.end !== null);
  const judged = compared ? ended.filter((one) => compared.has(one.id)) : ended;
  const coarse = recording.about.lanes === "coarse";
  const { t0, t1 } = window ?? { t0: trace.from, t1: trace.to };
  const seconds = trace.busy.length ? trace.busy.within(t0, t1) : t1 - t0;
  return {
    sessions: { value: ended.length },
    open: { value: sessions.length - ended.length },
    ...latencies(judged),
    ...times(judged, trace, coarse),
    busy: trace.busy.length ? { value: seconds } : { why: NO_LANES },
    sessions_per_second: seconds > 0 ? { value: ended.length / seconds } : { why: NO_SESSION },
    tokens_per_second: mapped(total(trace, "decode_tokens", window), (tokens) => tokens / seconds),
    ...pauses(trace, sessions, coarse, window),
    recomputed: total(trace, "recompute_tokens", window),
    saved: total(trace, "saved_blocks", window),
    loaded: total(trace, "loaded_blocks", window),
    preemptions: laned(trace, coarse, () => sessions.reduce((all, one) => all + one.preemptions, 0)),
  };
}

function latencies(ended: SessionFigures[]): Record<string, Figure> {
  const latency = sorted(ended.map((one) => one.latency ?? NaN));
  const ttft = sorted(ended.map((one) => one.ttft ?? NaN));
  const per = ended.flatMap((one) => (one.decoded ? [(one.latency ?? NaN) / one.decoded] : []));
  const first = ended.length ? NO_LANES : NO_SESSION;
  return {
    latency_mean: said(mean(latency), NO_SESSION),
    latency_p50: said(quantile(latency, 0.5), NO_SESSION),
    latency_p99: said(quantile(latency, 0.99), NO_SESSION),
    normalized: said(quantile(sorted(per), 0.5), ended.length ? "tokens not recorded" : NO_SESSION),
    ttft_mean: said(mean(ttft), first),
    ttft_p99: said(quantile(ttft, 0.99), first),
  };
}

/** Mean seconds of sessions in states. */
function times(ended: SessionFigures[], trace: Trace, coarse: boolean): Record<string, Figure> {
  const state = (code: number): Figure => mapped(
    laned(trace, coarse, () => mean(ended.map((one) => one.seconds[code]))), (seconds) => seconds,
  );
  return {
    waiting: state(WAITING),
    swapping: state(LOADING),
    recomputing: state(RECOMPUTE),
  };
}

function pauses(trace: Trace, sessions: SessionFigures[], coarse: boolean, window?: Window): Record<string, Figure> {
  const begun = window ? trace.pauses.filter((pause) => pause.at >= window.t0 && pause.at < window.t1) : trace.pauses;
  const over = begun.filter((pause) => pause.end !== null);
  const none = coarse ? COARSE : NO_PAUSES;
  const priced = over.filter((pause) => pause.wantedSeconds !== null);
  const handled = (name: string): Figure =>
    over.length ? { value: over.filter((pause) => pause.handling === name).length } : { why: none };
  const spent = (values: (number | null)[]): Figure => {
    if (over.length && !priced.length) return { why: "priced by an earlier version" };
    return priced.length ? { value: sum(values.map((value) => value ?? 0)) } : { why: none };
  };
  return {
    pauses: trace.pauses.length || !coarse
      ? { value: begun.length }
      : { value: sessions.reduce((all, one) => all + gapsOf(one), 0) },
    preserve: handled("preserve"),
    discard: handled("discard"),
    swap: handled("swap"),
    regret: spent(priced.map((pause) => pause.regret)),
    cost: spent(priced.map((pause) => pause.cost)),
  };
}

/** Times between segments, which is all that coarse lanes say of pauses. */
function gapsOf(session: SessionFigures): number {
  let gaps = 0;
  for (const lane of session.lanes) {
    for (let row = 0; row < lane.length; row++) if (isPause(lane.state[row])) gaps += 1;
  }
  return gaps;
}

function total(trace: Trace, column: StepColumn, window?: Window): Figure {
  const { steps } = trace;
  if (!steps.known.has(column)) return { why: NO_STEPS };
  const first = window ? above(steps.at, steps.length, window.t0 - 1e-9) : 0;
  const behind = window ? above(steps.at, steps.length, window.t1 - 1e-9) : steps.length;
  return { value: sum(steps.get(column).subarray(first, behind)) };
}

function laned(trace: Trace, coarse: boolean, value: () => number): Figure {
  if (!trace.intervals) return { why: NO_LANES };
  return coarse ? { why: COARSE } : { value: value() };
}

function said(value: number, otherwise: string): Figure {
  return Number.isFinite(value) ? { value } : { why: otherwise };
}

function mapped(figure: Figure, change: (value: number) => number): Figure {
  return "why" in figure ? figure : said(change(figure.value), NO_SESSION);
}

/** How two values of a metric compare; `SAME` is the part below which they count as equal. */
export type Verdict = "A" | "B" | "same" | "";
const SAME = 0.005;

/** Say whose value is better; nothing where neither direction is. */
export function verdict(metric: Metric, a: Figure, b: Figure): Verdict {
  if ("why" in a || "why" in b || metric.better === null) return "";
  const apart = Math.abs(a.value - b.value);
  if (apart <= SAME * Math.max(Math.abs(a.value), Math.abs(b.value))) return "same";
  return (a.value < b.value) === (metric.better === "less") ? "A" : "B";
}
