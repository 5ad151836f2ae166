// Who asked for a run: what its span says of that, and what it has from the run that started it.
import type { Run, Spans } from "./spans";

/** Names that the server or the client gave; "" where there is none. */
export interface Who {
  /** The name of the API key. */
  tenant: string;
  user: string;
  /** The session, by the name that its client chose. */
  session: string;
  /** The session that started it. */
  parent: string;
  /** The `X-Request-Id` of the answer. */
  request: string;
  /** The id of the answer: `chatcmpl-`, `resp_` or `msg_`. */
  answer: string;
}

export const NOBODY: Who = { tenant: "", user: "", session: "", parent: "", request: "", answer: "" };

/** The parts by which requests are told apart. */
export const PARTS = ["tenant", "user", "session"] as const;
export type Part = (typeof PARTS)[number];

const NAMES: Record<keyof Who, string> = {
  tenant: "caesura.tenant",
  user: "user.id",
  session: "session.id",
  parent: "caesura.session.parent",
  request: "caesura.x_request_id",
  answer: "gen_ai.response.id",
};
/** Agents that start agents are not deeper than this. */
const DEPTH = 16;

/** Return who asked for a run: for a sub-agent's run, the user who asked for its parent. */
export function whoOf(spans: Spans, run: Run | undefined): Who {
  if (!run) return NOBODY;
  const own = ownOf(run);
  let above = spans.parentOf(run);
  for (let depth = 0; above && depth < DEPTH; depth++, above = spans.parentOf(above)) {
    const theirs = ownOf(above);
    own.tenant ||= theirs.tenant;
    own.user ||= theirs.user;
    own.request ||= theirs.request;
    own.parent ||= theirs.session;
  }
  return own;
}

function ownOf({ span }: Run): Who {
  const found = { ...NOBODY };
  for (const part of Object.keys(NAMES) as (keyof Who)[]) {
    const value = span.attributes?.[NAMES[part]];
    if (typeof value === "string") found[part] = value;
  }
  return found;
}

/** All ids and names of it, for searching. */
export const idsOf = (who: Who): string[] => Object.values(who).filter(Boolean);

/** In words, as far as anything is known: "Ann, jo, main-2". */
export const saidOf = (who: Who): string => PARTS.map((part) => who[part]).filter(Boolean).join(", ");
