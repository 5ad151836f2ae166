// The title of the browser's tab: the view, what is chosen in it, and the recording.
import { effect } from "@preact/signals";
import { brief } from "../../format";
import type { Trace } from "../../model/trace";
import { VIEWS, viewOf } from "../../views/registry";
import { visible } from "../../views/session/content";
import { askedIn } from "../../views/session/names";
import { type Route, route } from "../router";
import { current, phase, version } from "../state";

const LONGEST = 60;

/** Keep the title of the tab to what is shown. */
export function startTitle(): void {
  effect(() => {
    version.value;
    const loaded = phase.value === "ready" ? current.value : null;
    document.title = titleOf(route.value, loaded?.recording.title ?? "", loaded?.trace ?? null);
  });
}

/** The title of an address, such as "Timeline · What is 17 * 23? · serve tiny · Caesura". */
export function titleOf(at: Route, recording: string, trace: Trace | null): string {
  const view = VIEWS[viewOf(at.view, trace)].title;
  const chosen = at.path[0] || at.query.sel || "";
  const words = chosen && trace ? wordsOf(chosen, trace) : "";
  return [view, words, recording, "Caesura"].filter(Boolean).map((part) => visible(part)).join(" · ");
}

/** What was asked in a request, a session or a run; its id where no texts are recorded. */
function wordsOf(id: string, trace: Trace): string {
  const lane = trace.laneOf(id);
  const run = trace.runs.find((one) => one.id === id || one.span.trace === id || one.span.attributes?.["gen_ai.conversation.id"] === id
    || one.turns.some((turn) => {
      const own = trace.laneOfSpan(turn);
      return own !== undefined && (own === lane || own.session === id);
    }));
  const question = run ? askedIn(run) : "";
  if (!question) return brief(id, 24);
  return question.length > LONGEST ? `${question.slice(0, LONGEST - 1)}…` : question;
}
