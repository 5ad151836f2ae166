// Ids of several recordings in one: each has its recording's mark before it, so that equal ids stay apart.
import type { Decision, Entry, SpanEntry } from "./records";

const BEHIND = ":";

/** Ids that a span has among its attributes and that only its own recording explains. */
const IDS = ["caesura.request.id", "gen_ai.conversation.id"];

/** An id with its recording's mark. */
export const markedId = (mark: string, id: string): string => `${mark}${BEHIND}${id}`;

/** The mark of an id; "" where it has none. */
export function markOf(id: string): string {
  const place = id.indexOf(BEHIND);
  return place < 0 ? "" : id.slice(0, place);
}

/** An entry with its ids marked. Names that clients chose stay: they mean the same on every server. */
export function marked(entry: Entry, mark: string): Entry {
  const own = (id: string): string => markedId(mark, id);
  switch (entry.kind) {
    case "lanes": return { ...entry, request: entry.request.map(own) };
    case "wait": return { ...entry, request: own(entry.request), behind: entry.behind && own(entry.behind) };
    case "continued": return { ...entry, request: own(entry.request), lost: own(entry.lost) };
    case "pause": return {
      ...entry, ...belonging(entry, own), wanted_by: entry.wanted_by?.map(([request, seconds]) => [own(request), seconds]),
      decisions: entry.decisions?.map((one) => (one.length > 7 && one[7] ? withOwn(one, own) : one)),
    };
    case "forecast":
    case "opening":
    case "session": return { ...entry, ...belonging(entry, own) };
    case "span": return markedSpan(entry, own);
    default: return entry;
  }
}

/** A decision names the request that wanted the blocks. */
function withOwn(decision: Decision, own: (id: string) => string): Decision {
  const [seconds, act, blocks, why, preserve, discard, swap, whom] = decision;
  return [seconds, act, blocks, why, preserve, discard, swap, whom && own(whom)];
}

function belonging({ request, session }: { request: string; session?: string }, own: (id: string) => string): { request: string; session?: string } {
  return session ? { request: own(request), session: own(session) } : { request: own(request) };
}

function markedSpan(entry: SpanEntry, own: (id: string) => string): SpanEntry {
  const attributes = { ...entry.attributes };
  for (const name of IDS) {
    const value = attributes[name];
    if (typeof value === "string") attributes[name] = own(value);
  }
  return { ...entry, trace: own(entry.trace), attributes };
}
