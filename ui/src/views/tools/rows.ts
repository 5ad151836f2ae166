// What is known of each tool: its pauses, its calls, its failures, and what its pauses cost.
import { grouped } from "../../charts/group";
import { type Misjudged, mean, misjudged, quantile, sorted } from "../../charts/stats";
import type { Pause } from "../../model/pause";
import type { SpanEntry } from "../../model/records";
import type { Trace } from "../../model/trace";
import { resultTokensOf } from "../../model/loops";
import { ownSeconds } from "../../causes/split";
import { usedBy } from "../who/usage";

/** A tool's figures; times in seconds, costs in block-seconds. NaN where there is nothing to say. */
export interface ToolRow {
  /** "" stands for pauses whose tool's name does not show. */
  tool: string;
  /** Whether any of its pauses waited for a person. */
  person: boolean;
  pauses: Pause[];
  calls: SpanEntry[];
  failures: number;
  /** How long its calls took by themselves, without what they waited for people, shortest first. */
  own: Float64Array;
  own50: number;
  /** The pauses that have ended with a result, shortest first. */
  seconds: Float64Array;
  p50: number;
  p90: number;
  p99: number;
  /** Predicted over actual. */
  misjudged: Misjudged;
  cost: number;
  /** Of all its pauses together. */
  totalCost: number;
  regret: number;
  /** Tokens that its results brought into contexts. */
  resultTokens: number;
  /** Context that was computed again, or loaded, behind its pauses. */
  recomputed: number;
  loaded: number;
  /** Seconds of all its pauses together. */
  paused: number;
  /** Seconds of the engine's steps from its pauses until the requests decoded again: its results, and what was recomputed. */
  engine: number;
  /** Seconds that requests queued behind its results. */
  queued: number;
}

export type ToolKey = "tool" | "count" | "calls" | "failures" | "own50" | "p50" | "p90" | "p99" | "bias" | "within" | "cost" | "totalCost" | "regret" | "resultTokens" | "recomputed" | "loaded" | "paused" | "engine" | "queued";

/** Return a row for each tool that paused a request or was called, by its name. */
export function rowsOf(trace: Trace): ToolRow[] {
  const pauses = grouped(trace.pauses, (pause) => pause.tool ?? "");
  const calls = grouped(trace.runs.flatMap((run) => run.calls), toolOf);
  const names = [...new Set([...pauses.keys(), ...calls.keys()])].sort();
  const engine = engineOf(trace);
  return names.map((tool) => row(trace, tool, pauses.get(tool) ?? [], calls.get(tool) ?? [], engine.get(tool) ?? NaN));
}

/** Return one row for several tools together. */
export function together(trace: Trace, rows: readonly ToolRow[]): ToolRow {
  return row(trace, "", rows.flatMap((one) => one.pauses), rows.flatMap((one) => one.calls), total(rows.map((one) => (Number.isNaN(one.engine) ? null : one.engine))));
}

/** Return what a row is sorted by. */
export function keyOf(one: ToolRow, key: ToolKey): number | string {
  switch (key) {
    case "count": return one.pauses.length;
    case "calls": return one.calls.length;
    // A prediction that is off by a factor is as wrong in either direction.
    case "bias": return Math.abs(Math.log(one.misjudged.median));
    case "within": return one.misjudged.within;
    default: return one[key];
  }
}

/** Return the rows in order; those without a value come last either way. */
export function ordered(rows: readonly ToolRow[], key: ToolKey, ascending: boolean): ToolRow[] {
  const sign = ascending ? 1 : -1;
  return [...rows].sort((one, two) => {
    const [a, b] = [keyOf(one, key), keyOf(two, key)];
    if (typeof a === "string" || typeof b === "string") return sign * String(a).localeCompare(String(b));
    if (Number.isNaN(a) || Number.isNaN(b)) return Number(Number.isNaN(a)) - Number(Number.isNaN(b));
    return sign * (a - b);
  });
}

/** Count failed calls by the kind of failure, the most frequent first. */
export function failuresOf(calls: readonly SpanEntry[]): [kind: string, count: number][] {
  const failed = calls.filter((call) => call.status === "error");
  const kinds = grouped(failed, (call) => String(call.attributes?.["error.type"] ?? "error"));
  return [...kinds].map(([kind, list]): [string, number] => [kind, list.length]).sort((a, b) => b[1] - a[1]);
}

/** What a handling came to. */
export interface Handled {
  handling: string;
  pauses: number;
  cost: number;
  regret: number;
}

/** Sum up ended pauses by how they were handled; `none` are those that nobody came back to, and
 * of those that new requests followed it is not known how. */
export function byHandling(pauses: readonly Pause[]): Handled[] {
  const groups = grouped(pauses.filter((pause) => pause.end), (pause) => pause.outcome === "followed" ? "followed" : (pause.handling ?? "none"));
  const order = ["preserve", "swap", "discard", "followed", "none"];
  return [...groups]
    .map(([handling, list]) => ({
      handling,
      pauses: list.length,
      cost: total(list.map((pause) => pause.cost)),
      regret: total(list.map((pause) => pause.regret)),
    }))
    .sort((a, b) => order.indexOf(a.handling) - order.indexOf(b.handling));
}

/** The pauses with a prediction and an end, which can be compared. */
export function compared(pauses: readonly Pause[]): Pause[] {
  return pauses.filter((pause) => (pause.predictedSeconds ?? 0) > 0 && (returned(pause) ?? 0) > 0);
}

/** The tools' shares of the engine's steps. Pauses without a name are not told from what is no tool's. */
function engineOf(trace: Trace): Map<string, number> {
  if (trace.empty || !trace.parts.some((part) => part.steps.length)) return new Map();
  const { rows } = usedBy("tool", { trace, from: trace.from, until: trace.to + 1, now: trace.to, blockTokens: 0 });
  return new Map(rows.filter((one) => one.name !== "").map((one) => [one.name, one.own.seconds]));
}

function row(trace: Trace, tool: string, pauses: Pause[], calls: SpanEntry[], engine: number): ToolRow {
  const seconds = sorted(pauses.map((pause) => returned(pause) ?? NaN));
  const pairs = compared(pauses);
  const own = sorted(calls.map((call) => ownSeconds(call) ?? NaN));
  return {
    tool, pauses, calls, seconds, own, engine,
    own50: quantile(own, 0.5),
    person: pauses.some((pause) => pause.person),
    failures: calls.filter((call) => call.status === "error").length,
    p50: quantile(seconds, 0.5),
    p90: quantile(seconds, 0.9),
    p99: quantile(seconds, 0.99),
    misjudged: misjudged(
      pairs.map((pause) => pause.predictedSeconds ?? NaN), pairs.map((pause) => pause.seconds ?? NaN),
    ),
    cost: mean(known(pauses.map((pause) => pause.cost))),
    totalCost: total(pauses.map((pause) => pause.cost)),
    regret: total(pauses.map((pause) => pause.regret)),
    resultTokens: total(pauses.map((pause) => resultTokensOf(trace, pause))),
    recomputed: total(pauses.map((pause) => pause.end?.recomputed_tokens)),
    loaded: total(pauses.map((pause) => pause.end?.loaded_tokens)),
    paused: total(pauses.map((pause) => pause.seconds)),
    queued: total(pauses.map((pause) => pause.end?.queue_seconds)),
  };
}

/** How long it took until the result came; a pause that was broken off says nothing of its tool. */
function returned(pause: Pause): number | null {
  return pause.outcome === "ended" || pause.outcome === "lost" ? null : pause.seconds;
}

function toolOf(call: SpanEntry): string {
  const name = call.attributes?.["gen_ai.tool.name"];
  return typeof name === "string" ? name : "";
}

function known(values: readonly (number | null | undefined)[]): number[] {
  return values.filter((value) => value !== null && value !== undefined);
}

function total(values: readonly (number | null | undefined)[]): number {
  const found = known(values);
  return found.length ? found.reduce((sum, value) => sum + value, 0) : NaN;
}
