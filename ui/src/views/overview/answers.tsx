// How the server's requests ended, those included that never reached the engine.
import { count } from "../../format";
import type { Shown } from "./shown";
import { ANSWERS, type Answer, answersIn } from "./summary";

const MEANINGS: Record<Answer, string> = {
  answered: "Answered with a status below 400",
  refused: "Refused with a status from 400 to 498: too many at once (429), not valid (400), not there (404), without a key (401)",
  failed: "Ended with a status of 500 or more",
  left: "Their clients left before the answer was over (499)",
};

/** What statuses are called that a server gives often. */
const STATUSES: Record<number, string> = {
  400: "not valid", 401: "without a key", 403: "not allowed", 404: "not there", 405: "wrong method", 413: "too large",
  415: "no JSON", 422: "reached a limit", 429: "too many at once", 499: "client left", 500: "internal error", 503: "unavailable",
};

export function Answers({ trace, t0, t1, served }: Shown & { served: boolean }) {
  if (!trace.http.length) {
    return served ? <p class="small muted">Requests that the server refused are not in this recording: it was made before they were recorded, or there was none.</p> : null;
  }
  const { counts, reasons } = answersIn(trace.http, t0, t1);
  return (
    <section class="ov-answers" aria-label="Requests to the server">
      <h3>Requests to the server</h3>
      {ANSWERS.map((name) => (
        <span key={name} title={MEANINGS[name]} data-testid={`ov-${name}`}
          class={counts[name] > 0 && (name === "failed" || name === "refused") ? "bad" : undefined}>
          <b>{count(counts[name])}</b> {name}
        </span>
      ))}
      {reasons.map(({ status, code, count: times }) => (
        <span key={`${status} ${code}`} class="chip" title={code || undefined}>
          {status} {STATUSES[status] ?? code} <b>× {count(times)}</b>
        </span>
      ))}
    </section>
  );
}
