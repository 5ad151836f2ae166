// Stages planned and real, how a run ended, and what was done when: what the tables of a plan show.
import type { Placement, PlanEntry } from "../../model/records";
import type { Plans } from "../../model/plans";

export interface StageRow {
  /** The plan that it belongs to, and its number there, from 0. */
  plan: number;
  stage: number;
  placements: readonly Placement[];
  /** In seconds of the run. */
  planned: { since: number; until: number };
  /** null: the run has not been there. */
  real: { since: number; until: number } | null;
  /** Why there is nothing real, or that it goes on. */
  state: "over" | "now" | "to come" | "passed over" | "replaced" | "not run";
}

/** The stages of all plans, in order. `now` is in seconds of the run. */
export function stageRows(plans: Plans, now: number): StageRow[] {
  const entered = spansOf(plans, now);
  return plans.plans.flatMap((plan, number) => {
    let at = plan.at - plans.from;
    return (plan.stages ?? []).map((stage, place) => {
      const since = at;
      at += stage.seconds ?? 0;
      const real = entered.find((one) => one.plan === number && one.stage === place);
      return {
        plan: number, stage: place, placements: stage.placements ?? [], planned: { since, until: at },
        real: real ? { since: real.since, until: real.until } : null,
        state: real ? (real.open ? "now" : "over") : absent(plans, number, place),
      };
    });
  });
}

function absent(plans: Plans, plan: number, stage: number): StageRow["state"] {
  if (plans.state === null) return "not run";
  if (plan < plans.plans.length - 1) return "replaced";
  const later = plans.stages.some((one) => one.plan === plan && (one.entry.stage ?? 0) > stage);
  return later || plans.state === "finished" ? "passed over" : "to come";
}

interface Span {
  plan: number;
  stage: number;
  since: number;
  until: number;
  open: boolean;
}

/** The stages that the run has been in; what is placed anew within a stage belongs to it. */
function spansOf(plans: Plans, now: number): Span[] {
  const spans: Span[] = [];
  for (const { plan, entry } of plans.stages) {
    const since = entry.at - plans.from;
    const last = spans.at(-1);
    if (last?.plan === plan && last.stage === (entry.stage ?? 0)) continue;
    if (last) last.until = since;
    spans.push({ plan, stage: entry.stage ?? 0, since, until: now, open: false });
  }
  const last = spans.at(-1);
  if (last) [last.until, last.open] = [Math.max(last.since, now), plans.state === "running"];
  return spans;
}

/** When the last output of the newest plan is expected, in seconds of the run. */
export const expectedEnd = (plans: Plans, plan: PlanEntry): number => plan.at - plans.from + (plan.makespan ?? 0);

export interface Change {
  at: number;
  why: string;
  strategy: string;
  before: number;
  after: number;
}

/** What was planned anew: when, why, and when the end was expected before and since. */
export function changesOf(plans: Plans): Change[] {
  return plans.plans.slice(1).map((plan, place) => ({
    at: plan.at - plans.from, why: plan.why ?? "", strategy: plan.strategy ?? "",
    before: expectedEnd(plans, plans.plans[place]), after: expectedEnd(plans, plan),
  }));
}

/** Requests of the run that are done, and how many there are. */
export interface Done {
  done: number;
  failed: number;
  requests: number;
}

export function doneOf(plans: Plans): Done {
  const last = plans.progress.at(-1);
  const sum = (column: number[] = []): number => column.reduce((total, one) => total + one, 0);
  return { done: sum(last?.done), failed: sum(last?.failed), requests: last ? sum(last.requests) : (plans.plans.at(-1)?.requests ?? 0) };
}

/** A line of finished requests over time. */
export interface DoneLine {
  name: string;
  points: { at: number; done: number; requests: number }[];
}

/** Points of a line: more than can be told apart are thinned out. */
const MOST = 60;

/** Finished requests of each model, as far as their lines can be told apart, and of all. */
export function doneLines(plans: Plans, most = 4): DoneLine[] {
  const step = Math.max(1, Math.ceil(plans.progress.length / MOST));
  const told = plans.progress.filter((_, place) => place % step === 0 || place === plans.progress.length - 1);
  const models = plans.progress.at(-1)?.model ?? [];
  const line = (name: string, counts: (values: number[]) => number): DoneLine => ({
    name,
    points: told.map((entry) => ({ at: entry.at - plans.from, done: counts(entry.done ?? []), requests: counts(entry.requests ?? []) })),
  });
  const all = line("all models", (values) => values.reduce((total, one) => total + one, 0));
  if (models.length < 2 || models.length >= most) return [all];
  return [all, ...models.map((model, place) => line(model, (values) => values[place] ?? 0))];
}
