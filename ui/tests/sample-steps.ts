// The steps of a made-up recording, counted from its lanes.
import type { Entry, StepsEntry } from "../src/model/records";
import type { SampleRow } from "./sample";

const TOTAL = 6000;
type Column = Exclude<keyof StepsEntry, "kind">;

/** `count` steps spread evenly over the rows, in entries of 64. */
export function* stepsOf(rows: SampleRow[], count: number, next: () => number): Generator<{ at: number; entry: Entry }> {
  if (!rows.length || !count) return;
  const from = rows[0][2];
  const gap = (rows[rows.length - 1][2] - from) / count;
  const now = new Map<string, SampleRow>();
  let place = 0;
  let columns = new Map<Column, number[]>();
  for (let i = 0; i < count; i++) {
    const at = from + (i + 1) * gap;
    for (; place < rows.length && rows[place][2] <= at; place++) {
      if (rows[place][1] === "ended") now.delete(rows[place][0]);
      else now.set(rows[place][0], rows[place]);
    }
    for (const [name, value] of Object.entries(step(now, at, next))) {
      const column = columns.get(name as Column);
      if (column) column.push(value);
      else columns.set(name as Column, [value]);
    }
    if (i % 64 === 63 || i === count - 1) {
      yield { at, entry: { kind: "steps", ...Object.fromEntries(columns) } as StepsEntry };
      columns = new Map();
    }
  }
}

function step(now: Map<string, SampleRow>, at: number, next: () => number): Record<Column, number> {
  const of = { running: 0, paused: 0, waiting: 0, prefill: 0, recompute: 0, decode: 0, running_blocks: 0, paused_blocks: 0, host: 0, loading: 0 };
  for (const [, state, , blocks, host] of now.values()) {
    of.host += host;
    if (state === "waiting") of.waiting += 1;
    else if (state === "paused" || state === "offloaded" || state === "dropped") {
      of.paused += 1;
      of.paused_blocks += blocks;
    } else {
      of.running += 1;
      of.running_blocks += blocks;
      if (state === "prefill" || state === "recompute" || state === "decode" || state === "loading") of[state] += 1;
    }
  }
  const free = Math.max(0, TOTAL - of.running_blocks - of.paused_blocks);
  return {
    at, seconds: 0.018 + 0.004 * next(), running: of.running, paused: of.paused, waiting: of.waiting,
    decode_tokens: of.decode, prefill_tokens: of.prefill * 256, recompute_tokens: of.recompute * 256, budget_blocks: 40, budget_tokens: 2048,
    saved_blocks: of.paused ? Math.floor(next() * 30) : 0, loaded_blocks: of.loading * 12, running_blocks: of.running_blocks,
    paused_blocks: of.paused_blocks, cached_blocks: Math.floor(free * 0.6), free_blocks: free, host_blocks: of.host,
  };
}
