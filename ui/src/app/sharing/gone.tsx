// Stands in for a recording that a link names and that is not there.
import { link } from "../router";
import { recordings } from "../state";
import { detailsOf } from "../recordings/words";
import { LIVE, fresh, nameOf, numberOf } from "./named";

/** The most recordings that are offered; the picker has all. */
const MOST = 8;

export function Gone({ name }: { name: string }) {
  const list = recordings.value;
  return (
    <div class="center">
      <div class="card panel" role="alert" data-testid="gone">
        <h2>{name === LIVE ? "Nothing is recorded now" : "This recording is not here"}</h2>
        {name === LIVE
          ? <p>The link asks for the recording that is made now, and there is none.</p>
          : <p>The link names recording {numberOf(name)}. It was deleted, or it is in another file than this one.</p>}
        <p>{list.length > MOST ? "The newest recordings that are here:" : "The recordings that are here:"}</p>
        <ul class="gone-list">
          {list.slice(0, MOST).map((one) => (
            <li key={nameOf(one)}><a href={link("timeline", [], fresh(nameOf(one)))}>{one.title}</a> <span class="muted small">{detailsOf(one)}</span></li>
          ))}
        </ul>
      </div>
    </div>
  );
}
