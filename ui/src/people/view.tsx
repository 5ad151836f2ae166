// "Waiting for you": a count in the header, the list behind it, and what belongs to one request.
import { useEffect, useRef } from "preact/hooks";
import { source } from "../app/state";
import { counted } from "../format";
import type { Run } from "../model/spans";
import { ServerSource } from "../sources/server";
import { ItemCard } from "./card";
import { Desk } from "./desk";
import { disclosed } from "./items";
import "./people.css";
import { forget, open, reachable, requests, shown, waiting, watch } from "./waiting";

/** The button in the header, and the list that it opens. Nothing, unless this server asks somebody. */
export function Waiting() {
  const from = source.value;
  useEffect(() => (from instanceof ServerSource ? watch(new Desk(from.base)) : undefined), [from]);
  const many = waiting.value.length;
  return (
    <>
      <span class="pn-hidden" role="status">{many ? `${counted(many, "request")} ${many === 1 ? "waits" : "wait"} for you` : ""}</span>
      {many > 0 && (
        <button class="pn-button" aria-haspopup="dialog" onClick={() => (open.value = true)}>
          Waiting for you <b class="num">{many}</b>
        </button>
      )}
      <List />
    </>
  );
}

function List() {
  const dialog = useRef<HTMLDialogElement>(null);
  const title = useRef<HTMLHeadingElement>(null);
  const wanted = open.value;
  useEffect(() => {
    if (!wanted) return dialog.current?.close();
    dialog.current?.showModal();
    title.current?.focus(); // not a button, which the next key could press
  }, [wanted]);
  const close = (): void => {
    open.value = false;
    forget();
  };
  return (
    <dialog ref={dialog} class="pn-list" aria-labelledby="pn-title" onClose={close}>
      <h2 id="pn-title" ref={title} tabIndex={-1}>Waiting for you</h2>
      {!reachable.value && <p class="note bad" role="alert">The server does not answer. What is below may be out of date.</p>}
      {wanted && shown.value.map((item) => <ItemCard key={item.id} item={item} />)}
      {wanted && !shown.value.length && <p class="soft">Nothing waits for you now.</p>}
      <form method="dialog" class="row pn-close"><button>Close</button></form>
    </dialog>
  );
}

/** What one request waits for; nothing where it waits for nobody. */
export function WaitsForYou({ request }: { request: string }) {
  const own = shown.value.filter((item) => requests.value.get(item.id) === request);
  if (!own.length) return null;
  return (
    <section aria-label="Waiting for you" class="pn-own">
      {own.map((item) => <ItemCard key={item.id} item={item} linked={false} />)}
    </section>
  );
}

/** What the runs of a session wait for; nothing where they wait for nobody. */
export function WaitsOfRuns({ runs }: { runs: readonly Run[] }) {
  const completions = new Set(runs.map((run) => run.span.attributes?.["gen_ai.response.id"]));
  const own = shown.value.filter((item) => completions.has(item.session));
  if (!own.length) return null;
  return (
    <section aria-label="Waiting for you" class="pn-own">
      {own.map((item) => <ItemCard key={item.id} item={item} linked={false} />)}
    </section>
  );
}

/** What a request waits for in one line, for a tooltip. */
export function WaitsLine({ request }: { request: string }) {
  const item = waiting.value.find((one) => requests.value.get(one.id) === request);
  if (!item) return null;
  return <div><b>Waits for you:</b> {item.kind === "approval" ? `may ${disclosed(item.tool)} run?` : disclosed(item.question.slice(0, 80))} Select it to answer.</div>;
}
