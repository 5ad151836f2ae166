// Generated from the schema of the scheduler's records by `make records`: do not edit.
// Readers ignore kinds and fields that they do not know, and do without optional ones.

export type Attribute = string | number | boolean | null | (string | number | boolean)[];
export type Attributes = Record<string, Attribute | undefined>;

/** The expected waste of each alternative. Null means that it was not possible. */
export interface Prices {
  /** Keep the blocks (block-seconds). */
  preserve?: number | null;
  /** Drop and recompute (block-seconds). */
  discard?: number | null;
  /** Copy to the host and back (block-seconds). */
  swap?: number | null;
}

/** The inputs of an opening's prices: those of the request first, then those of the engine. */
export interface Inputs {
  /** Time since the pause began (s). */
  elapsed?: number | null;
  /** Expected time until the result (s). */
  remaining?: number | null;
  /** Blocks that only this request holds (blocks). */
  resident?: number | null;
  /** Resident blocks with a copy on the host (blocks). */
  free_to_release?: number | null;
  /** Resident blocks without a copy (blocks). */
  uncopied?: number | null;
  /** Its blocks on the host only (blocks). */
  hosted?: number | null;
  /** Its blocks on neither the device nor the host (blocks). */
  missing?: number | null;
  /** What a resume would compute again after a discard, where a model has several groups (tokens). */
  recomputed?: number | null;
  /** Tokens of a block of full attention (tokens). */
  block_size?: number | null;
  /** Size of the KV cache (blocks). */
  total_blocks?: number | null;
  /** Free blocks (blocks). */
  free_blocks?: number | null;
  /** Free blocks of the host (blocks). */
  host_free?: number | null;
  /** Query tokens of the coming step (tokens). */
  running_tokens?: number | null;
  /** Context of that step (tokens). */
  running_context?: number | null;
  /** Blocks that the link can copy beside a step (blocks per step). */
  link_blocks?: number | null;
  /** Whether loading a block is faster than recomputing it. */
  swap_pays?: boolean | null;
  /** Expected time of the coming step (s). */
  step_seconds?: number | null;
}

/** Steps in which a waiting request lacked each resource; a step counts its first lack. */
export interface Lacked {
  /** Free KV blocks (steps). */
  blocks?: number;
  /** Runner slots (`max_num_seqs`) (steps). */
  slots?: number;
  /** Query tokens of the step (steps). */
  tokens?: number;
  /** The admission policy's consent (steps). */
  admission?: number;
  /** Its turn: it was behind a request that must not be overtaken (steps). */
  line?: number;
}

/** What was known of a session when a segment was queued. Words are salted hashes. */
export interface Features {
  /** Its context (tokens). */
  context_tokens?: number;
  /** Time since its arrival (s). */
  seconds?: number;
  /** Decoded in its last segment (tokens). */
  segment_tokens?: number;
  /** Decoded in a segment, on average (tokens). */
  segment_mean?: number;
  /** Its last result (tokens). */
  result_tokens?: number;
  /** A result, on average (tokens). */
  result_mean?: number;
  /** Results that were errors (results). */
  errors?: number;
  /** Whether the last result was an error. */
  last_error?: boolean;
  /** The last tool. */
  tool?: string;
  /** Hashed words of the last call. */
  words?: number[];
  /** Hashed first words of all calls so far. */
  heads?: number[];
  /** Calls that had each of these first words. */
  head_calls?: number[];
}

/** What one predictor expected when a segment was queued. Null means that it does not say. */
export interface Prediction {
  /** The predictor's name. */
  predictor?: string;
  /** Mean tokens of the segment (tokens). */
  decode_tokens?: number | null;
  /** 10, 50 and 90 % quantiles of these tokens; empty without them (tokens). */
  decode_quantiles?: number[];
  /** Mean number of calls until the session ends (calls). */
  calls_left?: number | null;
  /** Probability that the session ends with this segment. */
  ends_now?: number | null;
  /** Probability of at most 3 further calls. */
  ends_within_3?: number | null;
  /** Mean duration of the next pause (s). */
  pause_seconds?: number | null;
  /** Probability that the next pause exceeds 30 s. */
  long_pause?: number | null;
}

/** An event within a span. */
export interface SpanEvent {
  /** The event's name. */
  name: string;
  /** When it happened (s). */
  at: number;
  /** OpenTelemetry attributes. */
  attributes?: Attributes;
}

/** A model with its replicas (data parallelism) and the devices of each. */
export interface Placement {
  /** The model's name in the application. */
  model?: string;
  /** Replicas of the model (replicas). */
  replicas?: number;
  /** Devices of each replica (devices). */
  tensor_parallel?: number;
  /** KV cache on each device; 0: what is left (bytes). */
  kv_bytes?: number;
  /** The devices that it shares with other models, by name. */
  shares?: string;
}

/** Models that are to run together until the first of them has finished. */
export interface PlannedStage {
  /** Expected time, loading included (s). */
  seconds?: number;
  /** The models that finish with it. */
  finishes?: string[];
  /** What runs. */
  placements?: Placement[];
}

/** A model on a device for a part of the plan. */
export interface PlannedBlock {
  /** The device's number. */
  device?: number;
  /** The model's name in the application. */
  model?: string;
  /** `loading` or `serving`. */
  state?: string;
  /** Seconds from the plan's beginning (s). */
  since?: number;
  /** Seconds from the plan's beginning (s). */
  until?: number;
  /** Replicas of the model (replicas). */
  replicas?: number;
  /** Devices of each replica (devices). */
  tensor_parallel?: number;
}

/** The best plan that was not chosen. */
export interface OtherPlan {
  /** The search that found it. */
  strategy?: string;
  /** Expected time until the last output (s). */
  makespan?: number;
  /** The least of it over the draws of output lengths (s). */
  low?: number;
  /** The most of it (s). */
  high?: number;
  /** Why it was not chosen. */
  reason?: string;
}

/** One decision about a paused request, with the price of every alternative at that moment. */
export type Decision = [seconds: number, act: string, blocks: number, why?: string, preserve?: number | null, discard?: number | null, swap?: number | null, whom?: string];

/** Another request that lacked free blocks during a pause and the queue behind it. */
export type Wanted = [request: string, seconds: number];

/** The columns of a `steps` record. */
export const STEP_COLUMNS = ["at", "seconds", "running", "paused", "decode_tokens", "prefill_tokens", "recompute_tokens", "budget_blocks", "saved_blocks", "loaded_blocks", "running_blocks", "paused_blocks", "free_blocks", "waiting", "cached_blocks", "host_blocks", "budget_tokens"] as const;
export type StepColumn = (typeof STEP_COLUMNS)[number];

/** A session was queued for a segment: what each predictor expected of it. */
export interface ForecastEntry {
  kind: "forecast";
  /** The request's id in the engine. */
  request: string;
  /** When the segment was queued (s). */
  at: number;
  /** The id of the session's first request. */
  session?: string;
  /** Calls so far (calls). */
  calls?: number;
  /** The sessions of the same kind: by the last tool, or by the offered tools. */
  compared_with?: string;
  /** What the predictors knew of the session. */
  features?: Features;
  /** A row for the predictor in use, and one for each part of a mixture. */
  predictions?: Prediction[];
}

/** A pause has begun: the inputs of the decision, and the price of each alternative. */
export interface OpeningEntry {
  kind: "opening";
  /** The request's id in the engine. */
  request: string;
  /** When the pause began (s). */
  at: number;
  /** The id of the session's first request. */
  session?: string;
  /** The tool's name, if known. */
  tool?: string | null;
  /** Whether the call waits for a person. */
  person?: boolean;
  /** The request's context (tokens). */
  context_tokens?: number;
  /** Blocks that only this request held, in all groups (blocks). */
  blocks?: number;
  /** Size of these blocks on all devices, if known (bytes). */
  bytes?: number | null;
  /** The expected duration of the pause (s). */
  predicted_seconds?: number | null;
  /** The longest that the pause may last, if known (s). */
  deadline_seconds?: number | null;
  /** The policy that decides. */
  handling?: string;
  /** The expected waste of each alternative. */
  prices?: Prices;
  /** The inputs of the prices. */
  inputs?: Inputs;
}

/** A pause has ended: the decisions, their cost, and the regret in hindsight. */
export interface PauseEntry {
  kind: "pause";
  /** The request's id in the engine. */
  request: string;
  /** When the pause began (s). */
  at: number;
  /** The id of the session's first request. */
  session?: string;
  /** When the session arrived (s). */
  arrival?: number | null;
  /** Tokens of the segment's prompt or tool result (tokens). */
  given_tokens?: number;
  /** Tokens that the segment decoded (tokens). */
  decoded_tokens?: number;
  /** The tool's name, if known. */
  tool?: string | null;
  /** The request's context (tokens). */
  context_tokens?: number;
  /** Blocks that only this request held, in all groups (blocks). */
  blocks?: number;
  /** The expected duration of the pause (s). */
  predicted_seconds?: number | null;
  /** The prices of its opening. */
  prices?: Prices;
  /** Every release of blocks, with the prices at that moment. */
  decisions?: Decision[];
  /** `resumed`, `followed` by a new request after a client's call, or `ended`. */
  outcome?: string;
  /** What happened to the KV: `preserve`, `discard`, `swap`; `none` unless it resumed. */
  handling?: string;
  /** Time until the result came (s). */
  pause_seconds?: number | null;
  /** Time from the result until it ran (s). */
  queue_seconds?: number;
  /** Context loaded from the host (tokens). */
  loaded_tokens?: number;
  /** Context computed again (tokens). */
  recomputed_tokens?: number;
  /** What it cost others and itself: held blocks as far as others wanted them, what was recomputed, and loading (block-seconds). */
  cost?: number | null;
  /** The part of `cost` for blocks that it held while it queued behind its result. A record without it has a cost and a regret by an older measure (block-seconds). */
  queue_cost?: number | null;
  /** The part of `cost` for loading and recomputing (block-seconds). */
  work_cost?: number | null;
  /** What each alternative would have cost; null if keeping cost nothing. */
  hindsight?: Prices | null;
  /** `cost` minus the cheapest of `hindsight`; null if keeping cost nothing (block-seconds). */
  regret?: number | null;
  /** Time of the pause and of its queue in which other requests lacked blocks, or would have without those that paused requests gave up (s). */
  wanted_seconds?: number | null;
  /** Other requests that lacked blocks meanwhile (requests). */
  wanted_requests?: number | null;
  /** Up to 5 of these, longest first. */
  wanted_by?: Wanted[];
}

/** A session has ended. */
export interface SessionEntry {
  kind: "session";
  /** The request's id in the engine. */
  request: string;
  /** When the session ended (s). */
  at: number;
  /** The id of the session's first request. */
  session?: string;
  /** When the session arrived (s). */
  arrival?: number | null;
  /** Tokens of the segment's prompt or tool result (tokens). */
  given_tokens?: number;
  /** Tokens that the segment decoded (tokens). */
  decoded_tokens?: number;
  /** Calls of the session (calls). */
  calls?: number;
  /** The last request's `max_tokens` (tokens). */
  most_tokens?: number | null;
  /** VLLM's finish reason. */
  outcome?: string;
}

/** State changes of requests: columns of equal length, in the order of time. */
export interface LanesEntry {
  kind: "lanes";
  /** The request of each row. */
  request: string[];
  /** The state that it entered. */
  state: string[];
  /** When it entered the state (s). */
  at: number[];
  /** Device blocks that it holds (blocks). */
  blocks?: number[];
  /** Blocks of its context on the host only (blocks). */
  host?: number[];
  /** Its context (tokens). */
  tokens?: number[];
}

/** A request that was passed over in at least two steps has stopped waiting. */
export interface WaitEntry {
  kind: "wait";
  /** The request's id in the engine. */
  request: string;
  /** When the wait began (s). */
  since: number;
  /** When the wait ended (s). */
  until: number;
  /** Steps that ran without it (steps). */
  steps?: number;
  /** Steps by the resource that it lacked. */
  lacked?: Lacked;
  /** Blocks that it needed when it last did not fit (blocks). */
  needed_blocks?: number | null;
  /** Blocks that were free then (blocks). */
  free_blocks?: number | null;
  /** Steps in which a request behind it was admitted (steps). */
  overtaken?: number;
  /** The request that it stood behind when it last lacked its turn. */
  behind?: string | null;
  /** Requests that ran when the admission policy last refused it (requests). */
  admitted_most?: number | null;
  /** `fresh`, `tool` or `preempted`. */
  after?: string;
}

/** Up to 64 steps with a forward pass: columns of equal length, in the order of time. */
export type StepsEntry = { kind: "steps"; at: number[] } & Partial<Record<StepColumn, number[]>>;

/** No request runs any more: who holds the blocks that the last step has left. */
export interface RestEntry {
  kind: "rest";
  /** When it was looked at (s). */
  at: number;
  /** Held by requests that load or are about to run (blocks). */
  running_blocks?: number;
  /** Held by paused requests (blocks). */
  paused_blocks?: number;
  /** Free (blocks). */
  free_blocks?: number;
}

/** The engine's process died or hung. What came of it is a later record with the same `at`. */
export interface RestartEntry {
  kind: "restart";
  /** When it died; of a hung one, when it began to be silent (s). */
  at: number;
  /** The reason, as far as it is known. */
  why?: string;
  /** Starts of the engine, failed ones too. */
  attempts?: number;
  /** Until it took work; null: it has not (s). */
  seconds?: number | null;
  /** `down`, `restarted` or `given up`; empty in older records, which were written once. */
  state?: string;
}

/** A session's request was lost with its engine, and the session goes on in another one. */
export interface ContinuedEntry {
  kind: "continued";
  /** The id of the new request, without what the engine appends. */
  request: string;
  /** The id of the lost request, without what the engine appends. */
  lost: string;
  /** When the new request was sent (s). */
  at: number;
  /** When the lost request was sent, also one that a dead engine never had (s). */
  sent?: number | null;
}

/** An OpenTelemetry span of a run, a turn or a call. */
export interface SpanEntry {
  kind: "span";
  /** The trace's id. */
  trace: string;
  /** The span's id. */
  span: string;
  /** The span's name. */
  name: string;
  /** When it began (s). */
  start: number;
  /** When it ended; null while it is open (s). */
  end: number | null;
  /** The parent span's id. */
  parent?: string | null;
  /** `ok`, `error` or `unset`. */
  status?: string;
  /** The error's message. */
  message?: string;
  /** OpenTelemetry attributes. */
  attributes?: Attributes;
  /** Events within the span. */
  events?: SpanEvent[];
}

/** A request to the server was answered, refused or left by its client. */
export interface HttpEntry {
  kind: "http";
  /** When it was over (s). */
  at: number;
  /** The path of its route; `unknown` without one. */
  route: string;
  /** The status of its answer; 499 if its client left. */
  status: number;
  /** How long it took; of several, the longest (s). */
  seconds?: number;
  /** The error's code, if it has one. */
  code?: string;
  /** The id of the answer, which its run has as `gen_ai.response.id`. */
  answer?: string;
  /** Requests that it stands for: equal refusals within a second (requests). */
  count?: number;
  /** The name of its API key, if there are keys. */
  tenant?: string;
  /** The `X-Request-Id` of its answer; of several, the first one's. */
  request_id?: string;
}

/** Records before this one were lost. */
export interface GapEntry {
  kind: "gap";
  /** When the loss was noticed (s). */
  at: number;
  /** Records that were lost (records). */
  lost?: number;
  /** Why they were lost. */
  why?: string;
}

/** A plan of an application of several models, for what is left of it. */
export interface PlanEntry {
  kind: "plan";
  /** When its first stage begins (s). */
  at: number;
  /** The application's name. */
  application?: string;
  /** The search that found it. */
  strategy?: string;
  /** Devices that it may use (devices). */
  devices?: number;
  /** Requests of the application (requests). */
  requests?: number;
  /** Expected time until the last output (s). */
  makespan?: number;
  /** The least of it over the draws of output lengths (s). */
  low?: number;
  /** The most of it (s). */
  high?: number;
  /** Why a run changed to it; empty for the first plan. */
  why?: string;
  /** Its stages in their order. */
  stages?: PlannedStage[];
  /** Which model has which device when. */
  blocks?: PlannedBlock[];
  /** The next best plan, and why it lost. */
  next_best?: OtherPlan | null;
}

/** A run has begun a stage of its plan, or placed other models within it. */
export interface StageEntry {
  kind: "stage";
  /** When it began (s). */
  at: number;
  /** The stage's number in the newest plan. */
  stage?: number;
  /** What runs from now on. */
  placements?: Placement[];
}

/** An engine of a run has changed its state. */
export interface ReplicaEntry {
  kind: "replica";
  /** When it changed (s). */
  at: number;
  /** The engine's name. */
  replica: string;
  /** The model's name in the application. */
  model?: string;
  /** The numbers of its devices. */
  devices?: number[];
  /** `loading`, `serving`, `draining`, `evicting`, `gone`, `failed` to load, or `lost`. */
  state?: string;
  /** Why it failed or was lost. */
  reason?: string;
}

/** The requests of a run that are done, by model: columns of equal length. */
export interface ProgressEntry {
  kind: "progress";
  /** When so many were done (s). */
  at: number;
  /** `running`, `finished` or `stopped`. */
  state?: string;
  /** The models. */
  model?: string[];
  /** Requests of each model (requests). */
  requests?: number[];
  /** Of them done (requests). */
  done?: number[];
  /** Of the done ones without an output (requests). */
  failed?: number[];
}

export type KnownEntry = ForecastEntry | OpeningEntry | PauseEntry | SessionEntry | LanesEntry | WaitEntry | StepsEntry | RestEntry | RestartEntry | ContinuedEntry | SpanEntry | HttpEntry | GapEntry | PlanEntry | StageEntry | ReplicaEntry | ProgressEntry;

/** What fields hold; those with `!` are always there. The page limits `seconds`. */
export const KIND_SHAPES: Record<string, Record<string, string>> = {
  forecast: { request: "string!", at: "seconds!", session: "string", calls: "number", compared_with: "string", features: "Features", predictions: "Prediction[]" },
  opening: { request: "string!", at: "seconds!", session: "string", tool: "string", person: "boolean", context_tokens: "number", blocks: "number", bytes: "number", predicted_seconds: "seconds", deadline_seconds: "seconds", handling: "string", prices: "Prices", inputs: "Inputs" },
  pause: { request: "string!", at: "seconds!", session: "string", arrival: "seconds", given_tokens: "number", decoded_tokens: "number", tool: "string", context_tokens: "number", blocks: "number", predicted_seconds: "seconds", prices: "Prices", decisions: "Decision[]", outcome: "string", handling: "string", pause_seconds: "seconds", queue_seconds: "seconds", loaded_tokens: "number", recomputed_tokens: "number", cost: "number", queue_cost: "number", work_cost: "number", hindsight: "Prices", regret: "number", wanted_seconds: "seconds", wanted_requests: "number", wanted_by: "Wanted[]" },
  session: { request: "string!", at: "seconds!", session: "string", arrival: "seconds", given_tokens: "number", decoded_tokens: "number", calls: "number", most_tokens: "number", outcome: "string" },
  lanes: { request: "string[]!", state: "string[]!", at: "seconds[]!", blocks: "number[]", host: "number[]", tokens: "number[]" },
  wait: { request: "string!", since: "seconds!", until: "seconds!", steps: "number", lacked: "Lacked", needed_blocks: "number", free_blocks: "number", overtaken: "number", behind: "string", admitted_most: "number", after: "string" },
  steps: { at: "seconds[]!", seconds: "seconds[]", running: "number[]", paused: "number[]", decode_tokens: "number[]", prefill_tokens: "number[]", recompute_tokens: "number[]", budget_blocks: "number[]", saved_blocks: "number[]", loaded_blocks: "number[]", running_blocks: "number[]", paused_blocks: "number[]", free_blocks: "number[]", waiting: "number[]", cached_blocks: "number[]", host_blocks: "number[]", budget_tokens: "number[]" },
  rest: { at: "seconds!", running_blocks: "number", paused_blocks: "number", free_blocks: "number" },
  restart: { at: "seconds!", why: "string", attempts: "number", seconds: "seconds", state: "string" },
  continued: { request: "string!", lost: "string!", at: "seconds!", sent: "seconds" },
  span: { trace: "string!", span: "string!", name: "string!", start: "seconds!", end: "seconds", parent: "string", status: "string", message: "string", attributes: "Attributes", events: "SpanEvent[]" },
  http: { at: "seconds!", route: "string!", status: "number!", seconds: "seconds", code: "string", answer: "string", count: "number", tenant: "string", request_id: "string" },
  gap: { at: "seconds!", lost: "number", why: "string" },
  plan: { at: "seconds!", application: "string", strategy: "string", devices: "number", requests: "number", makespan: "seconds", low: "seconds", high: "seconds", why: "string", stages: "PlannedStage[]", blocks: "PlannedBlock[]", next_best: "OtherPlan" },
  stage: { at: "seconds!", stage: "number", placements: "Placement[]" },
  replica: { at: "seconds!", replica: "string!", model: "string", devices: "number[]", state: "string", reason: "string" },
  progress: { at: "seconds!", state: "string", model: "string[]", requests: "number[]", done: "number[]", failed: "number[]" },
};

/** What parts of entries hold; of a row in the order of its columns. */
export const PART_SHAPES: Record<string, Record<string, string>> = {
  Prices: { preserve: "number", discard: "number", swap: "number" },
  Inputs: { elapsed: "seconds", remaining: "seconds", resident: "number", free_to_release: "number", uncopied: "number", hosted: "number", missing: "number", recomputed: "number", block_size: "number", total_blocks: "number", free_blocks: "number", host_free: "number", running_tokens: "number", running_context: "number", link_blocks: "number", swap_pays: "boolean", step_seconds: "seconds" },
  Lacked: { blocks: "number", slots: "number", tokens: "number", admission: "number", line: "number" },
  Features: { context_tokens: "number", seconds: "seconds", segment_tokens: "number", segment_mean: "number", result_tokens: "number", result_mean: "number", errors: "number", last_error: "boolean", tool: "string", words: "number[]", heads: "number[]", head_calls: "number[]" },
  Prediction: { predictor: "string", decode_tokens: "number", decode_quantiles: "number[]", calls_left: "number", ends_now: "number", ends_within_3: "number", pause_seconds: "seconds", long_pause: "number" },
  SpanEvent: { name: "string!", at: "seconds!", attributes: "Attributes" },
  Placement: { model: "string", replicas: "number", tensor_parallel: "number", kv_bytes: "number", shares: "string" },
  PlannedStage: { seconds: "seconds", finishes: "string[]", placements: "Placement[]" },
  PlannedBlock: { device: "number", model: "string", state: "string", since: "seconds", until: "seconds", replicas: "number", tensor_parallel: "number" },
  OtherPlan: { strategy: "string", makespan: "seconds", low: "seconds", high: "seconds", reason: "string" },
  Attributes: {},
};
export const ROW_SHAPES: Record<string, string[]> = {
  Decision: ["seconds!", "string!", "number!", "string", "number", "number", "number", "string"],
  Wanted: ["string!", "seconds!"],
};
