// How much of their token budgets steps used.
import type { Steps } from "../../model/steps";

/** Return the tokens that a step computed, whatever they were for. */
export function tokensOf(steps: Steps, row: number): number {
  const of = steps.columns;
  return of.decode_tokens[row] + of.prefill_tokens[row] + of.recompute_tokens[row];
}

/** Whether a step used up its token budget, so that something in it was cut short or left out. */
export const isFull = (steps: Steps, row: number): boolean =>
  steps.columns.budget_tokens[row] > 0 && tokensOf(steps, row) >= steps.columns.budget_tokens[row];

/** Return how many steps of [first, behind) used up their token budget. */
export function fullSteps(steps: Steps, first: number, behind: number): number {
  let full = 0;
  for (let row = first; row < behind; row++) full += Number(isFull(steps, row));
  return full;
}
