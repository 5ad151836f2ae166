// The recordings in a dialog: what each is, and naming, noting, pinning and deleting it.
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Recording } from "../../model/records";
import type { RecordingChange, Source } from "../../sources/source";
import { reread } from "../load";
import { link, setQuery } from "../router";
import { fresh, nameOf } from "../sharing/named";
import { current, recordings, source } from "../state";
import { joinedName } from "../together";
import { OpenFile } from "./openfile";
import { detailsOf, titleOf } from "./words";

const open = signal(false);
/** The names of the recordings that are ticked. */
const ticked = signal<ReadonlySet<string>>(new Set());
/** What went wrong last; "": nothing. */
const wrong = signal("");

export function ManageButton() {
  if (!recordings.value.length) return null;
  return (
    <button class="plain" onClick={() => (open.value = true)} aria-label="Recordings: name, note, pin, delete" title="Recordings: name, note, pin, delete" data-testid="manage">⋯</button>
  );
}

export function ManageDialog() {
  const dialog = useRef<HTMLDialogElement>(null);
  const shown = open.value;
  useEffect(() => {
    wrong.value = "";
    if (shown) dialog.current?.showModal();
    else dialog.current?.close();
  }, [shown]);
  const from = source.value;
  return (
    <dialog ref={dialog} class="manage" aria-labelledby="manage-title" onClose={() => (open.value = false)}>
      {shown && from && (
        <>
          <h2 id="manage-title">Recordings</h2>
          {wrong.value && <p class="note bad" role="alert">{wrong.value}</p>}
          <ul class="manage-list">
            {recordings.value.map((one) => <Row key={nameOf(one)} one={one} from={from} />)}
          </ul>
          <ShowTogether />
          {from.change && <p class="muted small">A pinned recording is kept when the file is full or its entries are old.</p>}
          <div class="row">
            <OpenFile />
            <span class="muted small grow">An exported page, .json or .jsonl; or drop it onto the page. It is read here and sent nowhere.</span>
            <form method="dialog"><button>Close</button></form>
          </div>
        </>
      )}
    </dialog>
  );
}

function tick(name: string): void {
  const next = new Set(ticked.peek());
  if (!next.delete(name)) next.add(name);
  ticked.value = next;
}

/** The way to several recordings as one. */
function ShowTogether() {
  const chosen = recordings.value.filter((one) => ticked.value.has(nameOf(one)));
  if (recordings.value.length < 2) return null;
  return (
    <p class="row">
      {chosen.length > 1
        ? <a href={link("timeline", [], fresh(joinedName(chosen)))} onClick={() => (open.value = false)} data-testid="together">Show {chosen.length} as one</a>
        : <span class="muted small">Tick several to show them as one, such as those of several servers.</span>}
    </p>
  );
}

function Row({ one, from }: { one: Recording; from: Source }) {
  const [state, setState] = useState<"" | "edit" | "delete">("");
  // A recording changes in place, so that the list says when.
  recordings.value;
  const mine = current.value?.recording === one;
  const change = async (changed: RecordingChange): Promise<void> => {
    if (await done(() => from.change!(one, changed))) setState("");
  };
  const remove = async (): Promise<void> => {
    if (!(await done(() => from.remove!(one)))) return;
    if (mine) setQuery(fresh(""));
  };
  return (
    <li data-testid="recording" aria-current={mine ? "true" : undefined}>
      <div class="manage-row">
        {recordings.value.length > 1 && (
          <input type="checkbox" aria-label={`Show together: ${titleOf(one)}`} checked={ticked.value.has(nameOf(one))} onChange={() => tick(nameOf(one))} data-testid="tick" />
        )}
        <a class="grow" href={link("timeline", [], fresh(nameOf(one)))} onClick={() => (open.value = false)}>{titleOf(one)}</a>
        <span class="muted small">{detailsOf(one)}</span>
        {from.change && (
          <span class="row">
            <button aria-pressed={one.pinned} onClick={() => void change({ pinned: !one.pinned })}>{one.pinned ? "Unpin" : "Pin"}</button>
            <button aria-expanded={state === "edit"} onClick={() => setState(state === "edit" ? "" : "edit")}>Edit</button>
            {!one.live && <button aria-expanded={state === "delete"} onClick={() => setState(state === "delete" ? "" : "delete")}>Delete</button>}
          </span>
        )}
      </div>
      {one.note && state !== "edit" && <p class="manage-note soft small">{one.note}</p>}
      {state === "edit" && <Edit one={one} save={change} />}
      {state === "delete" && (
        <p class="row" role="alert">
          <span class="grow">{one.title} and all that it holds will be gone.</span>
          <button class="primary" onClick={() => void remove()}>Delete for good</button>
          <button onClick={() => setState("")}>Keep</button>
        </p>
      )}
    </li>
  );
}

function Edit({ one, save }: { one: Recording; save: (changed: RecordingChange) => Promise<void> }) {
  const title = useRef<HTMLInputElement>(null);
  const note = useRef<HTMLTextAreaElement>(null);
  useEffect(() => title.current?.focus(), []);
  const submit = (event: Event): void => {
    event.preventDefault();
    void save({ title: title.current!.value, note: note.current!.value });
  };
  return (
    <form class="manage-edit" onSubmit={submit}>
      <label>Title <input ref={title} value={one.title} maxLength={200} required data-testid="recording-title" /></label>
      <label>Note <textarea ref={note} value={one.note} maxLength={4000} rows={3} data-testid="recording-note" /></label>
      <div class="row"><button class="primary" type="submit">Save</button></div>
    </form>
  );
}

/** Whether it worked; the list is read again then. */
async function done(work: () => Promise<void>): Promise<boolean> {
  wrong.value = "";
  try {
    await work();
    await reread();
    return true;
  } catch (error) {
    wrong.value = error instanceof Error ? error.message : "It did not work.";
    return false;
  }
}
