// How the server's requests ended, those included that never reached the engine.
import { count } from "../../format";
import { link } from "../../app/router";
import { STATUSES } from "../../model/failing";
import type { Shown } from "./shown";
import { ANSWERS, type Answer, answersIn } from "./summary";

const MEANINGS: Record<Answer, string> = {
  answered: "Answered with a status below 400",
  refused: "Refused with a status from 400 to 498: too many at once (429), not valid (400), not there (404), without a key (401)",
  failed: "Ended with a status of 500 or more",
  left: "Their clients left before the answer was over (499)",
};

export function Answers({ trace, t0, t1, served }: Shown & { served: boolean }) {
  if (!trace.http.length) {
    return served ? <p class="small muted">Requests that the server refused are not in this recording: it was made before they were recorded, or there was none.</p> : null;
  }
  // A recording of requests that tells nothing of their answers.
  const silent = trace.parts.filter((part) => part.lanes.length && !part.http.length).length;
  const some = silent ? ` of ${trace.parts.length - silent} of ${trace.parts.length} recordings` : "";
  const { counts, reasons } = answersIn(trace.http, t0, t1);
  return (
    <section class="ov-answers" aria-label="Requests to the server">
      <h3>Requests to the server{some}</h3>
      {ANSWERS.map((name) => (
        <span key={name} title={MEANINGS[name]} data-testid={`ov-${name}`}
          class={counts[name] > 0 && (name === "failed" || name === "refused") ? "bad" : undefined}>
          <b>{count(counts[name])}</b> {name}
        </span>
      ))}
      {reasons.map(({ status, code, count: times }) => (
        <a key={`${status} ${code}`} class="chip" title="The failures of this sort" href={link("errors", [], { "er.q": `${status} ${code}`.trim() })}>
          {status} {STATUSES[status] ?? ""} {code && <span class="mono">{code}</span>} <b>× {count(times)}</b>
        </a>
      ))}
    </section>
  );
}
