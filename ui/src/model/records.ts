// The entries that a recording consists of, as they are written, sent and embedded.
// Readers ignore kinds and fields that they do not know and do without optional ones.

/** Block-seconds that each alternative was priced at; null: not possible. */
export interface Prices {
  preserve?: number | null;
  discard?: number | null;
  swap?: number | null;
}

/** What an alternative is called in prices. */
export type Alternative = keyof Prices;
export const ALTERNATIVES: readonly Alternative[] = ["preserve", "discard", "swap"];

/** Requests entered states; columns of equal length in time order. */
export interface LanesEntry {
  kind: "lanes";
  request: string[];
  state: string[];
  at: number[];
  blocks?: number[];
  host?: number[];
  tokens?: number[];
}

/** What a handling saw when a pause began. Sizes in blocks, times in seconds. */
export interface Inputs {
  elapsed?: number | null;
  remaining?: number | null;
  resident?: number | null;
  free_to_release?: number | null;
  uncopied?: number | null;
  hosted?: number | null;
  missing?: number | null;
  block_size?: number | null;
  total_blocks?: number | null;
  free_blocks?: number | null;
  host_free?: number | null;
  running_tokens?: number | null;
  running_context?: number | null;
  link_blocks?: number | null;
  swap_pays?: boolean | null;
  step_seconds?: number | null;
}

/** A pause has begun: what was known, and what each alternative was priced at. */
export interface OpeningEntry {
  kind: "opening";
  request: string;
  session?: string;
  tool?: string | null;
  person?: boolean;
  at: number;
  context_tokens?: number;
  blocks?: number;
  predicted_seconds?: number | null;
  deadline_seconds?: number | null;
  handling?: string;
  prices?: Prices;
  inputs?: Inputs;
}

/** Seconds since the pause began, what was done, to how many blocks, and why. */
export type Decision = [seconds: number, act: string, blocks: number, why?: string];

/** A pause has ended. */
export interface PauseEntry {
  kind: "pause";
  request: string;
  session?: string;
  arrival?: number;
  given_tokens?: number;
  decoded_tokens?: number;
  tool?: string | null;
  at: number;
  context_tokens?: number;
  blocks?: number;
  predicted_seconds?: number | null;
  prices?: Prices;
  decisions?: Decision[];
  outcome?: string;
  handling?: string;
  pause_seconds?: number | null;
  queue_seconds?: number | null;
  loaded_tokens?: number;
  recomputed_tokens?: number;
  cost?: number | null;
  hindsight?: Prices | null;
  regret?: number | null;
}

/** A session has ended. */
export interface SessionEntry {
  kind: "session";
  request: string;
  session?: string;
  arrival?: number;
  given_tokens?: number;
  decoded_tokens?: number;
  at: number;
  calls?: number;
  most_tokens?: number | null;
  outcome?: string;
}

/** What a waiting request lacked, in how many of the steps that looked at it. */
export interface Lacked {
  blocks?: number;
  slots?: number;
  tokens?: number;
  admission?: number;
  line?: number;
}

/** A request has stopped waiting. */
export interface WaitEntry {
  kind: "wait";
  request: string;
  since: number;
  until: number;
  steps?: number;
  lacked?: Lacked;
  needed_blocks?: number | null;
  free_blocks?: number | null;
  overtaken?: number;
  after?: string;
}

/** The columns of a `steps` entry. */
export const STEP_COLUMNS = [
  "at", "seconds", "running", "paused", "waiting",
  "decode_tokens", "prefill_tokens", "recompute_tokens",
  "budget_blocks", "saved_blocks", "loaded_blocks",
  "running_blocks", "paused_blocks", "cached_blocks", "free_blocks", "host_blocks",
] as const;
export type StepColumn = (typeof STEP_COLUMNS)[number];

/** Steps of the engine, in columns of equal length. */
export type StepsEntry = { kind: "steps"; at: number[] } & Partial<Record<StepColumn, number[]>>;

export type Attribute = string | number | boolean | null | (string | number | boolean)[];
export type Attributes = Record<string, Attribute | undefined>;

/** An OpenTelemetry span; `end` is null while it is open. */
export interface SpanEntry {
  kind: "span";
  trace: string;
  span: string;
  parent?: string | null;
  name: string;
  start: number;
  end: number | null;
  status?: "ok" | "error" | "unset";
  message?: string;
  attributes?: Attributes;
  events?: { name: string; at: number; attributes?: Attributes }[];
}

/** Entries before this one were lost. */
export interface GapEntry {
  kind: "gap";
  at: number;
  lost?: number;
  why?: string;
}

export type KnownEntry =
  | LanesEntry | OpeningEntry | PauseEntry | SessionEntry
  | WaitEntry | StepsEntry | SpanEntry | GapEntry;

/** An entry with the id that the store gave it, if it has one. */
export type Entry = KnownEntry & { id?: number };

/** One run of a server or of the simulator, or one imported file of records. */
export interface Recording {
  id: number | string;
  title: string;
  source: string;
  started: number;
  ended: number | null;
  live: boolean;
  entries: number;
  content: boolean;
  about: Record<string, Attribute | undefined>;
}

/** The recording that `value` describes; missing fields get defaults. */
export function recordingOf(value: Partial<Recording>): Recording {
  return {
    id: value.id ?? "recording",
    title: value.title || `Recording ${value.id ?? ""}`.trim(),
    source: value.source ?? "records",
    started: value.started ?? 0,
    ended: value.ended ?? null,
    live: value.live ?? false,
    entries: value.entries ?? 0,
    content: value.content ?? false,
    about: value.about ?? {},
  };
}
