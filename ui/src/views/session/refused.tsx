// A request that was refused before a run was made for it: whoever looks for its id is told.
import { link } from "../../app/router";
import { moment } from "../../format";
import { STATUSES, refusedAs } from "../../model/failing";
import type { Trace } from "../../model/trace";
import { visible } from "./content";

export function Refused({ trace, id }: { trace: Trace; id: string }) {
  const found = refusedAs(trace, id);
  if (!found) return null;
  const why = [found.status, found.code || STATUSES[found.status]].filter(Boolean).join(" ");
  return (
    <p class="note" role="status" data-testid="refused">
      The request with this id was refused at {moment(found.at, 0)}: {visible(why)}. <a href={link("errors", [], { "er.q": id.trim() })}>Errors</a>
    </p>
  );
}
