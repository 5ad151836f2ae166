// A session's trajectory as the server tells it: a tree of branches, each of segments of tokens.
export const SOURCES = ["prompt", "sampled", "tool", "user", "template"] as const;
export type Source = (typeof SOURCES)[number];

/** What the tokens of each source are. */
export const MEANS: Record<Source, string> = {
  prompt: "a history that the template wrote as a whole",
  sampled: "sampled by the model; they count for the loss",
  tool: "results of calls",
  user: "a later prompt",
  template: "earlier turns that the template wrote otherwise",
};

export interface Segment {
  source: Source;
  tokens: number;
  stop: string | null;
  startedAt: number | null;
  seconds: number | null;
  cached: number | null;
  /** How long the request was paused before the turn. */
  paused: number | null;
  /** How many pictures, sounds and videos stand in it. */
  media: number;
}

export interface Branch {
  id: string;
  session: string;
  model: string | null;
  parent: string | null;
  /** How many tokens it shares with its parent. */
  point: number;
  segments: Segment[];
  /** How many branches stand above it. */
  depth: number;
  /** How many tokens it has, the shared ones too, and how many of its own count for the loss. */
  length: number;
  counts: number;
}

export interface Tree {
  session: string;
  parent: string | null;
  rewards: [string, number][];
  branches: Branch[];
}

type Told = Record<string, unknown>;
const object = (value: unknown): Told => (typeof value === "object" && value !== null ? (value as Told) : {});
const listed = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);
const text = (value: unknown): string | null => (typeof value === "string" ? value : null);
const numeric = (value: unknown): number | null => (typeof value === "number" && Number.isFinite(value) ? value : null);

/** The trees in an answer of /v1/sessions/ID/trajectories: the session's, then those below it. */
export function treesOf(answer: unknown): Tree[] {
  return listed(object(answer).data).map(treeOf);
}

function treeOf(value: unknown): Tree {
  const told = object(value);
  const known = new Map<string, Branch>();
  const made = listed(told.branches).map((one) => branchOf(object(one), known));
  const rewards = Object.entries(object(told.rewards)).filter((one): one is [string, number] => numeric(one[1]) !== null);
  return { session: text(told.session) ?? "", parent: text(told.parent), rewards, branches: inOrder(made) };
}

function branchOf(told: Told, known: Map<string, Branch>): Branch {
  const segments = listed(told.segments).map(object).map(segmentOf);
  const sum = (of: Segment[]): number => of.reduce((all, one) => all + one.tokens, 0);
  const parent = known.get(text(told.parent) ?? "");
  const point = numeric(told.branch_point) ?? 0;
  const branch: Branch = {
    id: text(told.id) ?? "", session: text(told.session) ?? "", model: text(told.model), parent: parent?.id ?? null, point, segments,
    depth: parent ? parent.depth + 1 : 0, length: point + sum(segments), counts: sum(segments.filter((one) => one.source === "sampled")),
  };
  known.set(branch.id, branch);
  return branch;
}

function segmentOf(told: Told): Segment {
  return {
    source: SOURCES.find((one) => one === told.source) ?? "template",
    tokens: listed(told.tokens).length,
    stop: text(told.stop_reason),
    startedAt: numeric(told.started_at),
    seconds: numeric(told.seconds),
    cached: numeric(told.cached_tokens),
    paused: numeric(object(told.resume).pause_seconds),
    media: listed(told.media).length,
  };
}

/** Each branch, then those that leave it. */
function inOrder(branches: Branch[]): Branch[] {
  const below = (parent: string | null): Branch[] =>
    branches.filter((one) => one.parent === parent).flatMap((one) => [one, ...below(one.id)]);
  return below(null);
}

export interface Answer {
  trees: Tree[];
  /** Why there are none, in a sentence. */
  why: string;
}

/** Ask the server for the trajectories of a session, by its name or the id of one of its answers. */
export async function ask(base: string, session: string, key: string): Promise<Answer> {
  try {
    const headers: Record<string, string> = key ? { Authorization: `Bearer ${key}` } : {};
    const answer = await fetch(`${base}/v1/sessions/${encodeURIComponent(session)}/trajectories`, { headers });
    const told: unknown = await answer.json();
    if (answer.ok) return { trees: treesOf(told), why: "" };
    return { trees: [], why: text(object(object(told).error).message) ?? `The server answered ${answer.status}.` };
  } catch {
    return { trees: [], why: "The server does not answer." };
  }
}
