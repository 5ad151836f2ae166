// What differs where a history no longer continues: excerpts of both texts, the differing part marked.
import type { Attributes } from "../../model/records";
import { visible } from "./content";
import { differenceOf, followUp } from "./followup";

/** Excerpts of what is remembered and of what came; nothing where the recording has none. */
export function Difference({ attributes }: { attributes: Attributes | undefined }) {
  const found = differenceOf(attributes);
  if (!found) return null;
  const { before, kept, sent, behind } = found;
  return (
    <dl class="difference small" data-testid="difference">
      {([["remembered", kept], ["came back", sent]] as const).map(([name, own]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{visible(before)}<mark>{visible(own) || "∅"}</mark>{visible(behind)}</dd>
        </div>
      ))}
    </dl>
  );
}

/** How the history before a request became tokens, where it follows an answer. */
export function Followed({ attributes }: { attributes: Attributes | undefined }) {
  const follows = followUp(attributes);
  if (!follows) return null;
  return (
    <div data-testid="request-follow-up">
      <p class="small soft" title={follows.title}>Its history: {visible(follows.said)}</p>
      <Difference attributes={attributes} />
    </div>
  );
}
