// Opening a file of the reader's own, by a button or by dropping it onto the page.
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { percent } from "../../format";
import { fileSource } from "../../sources/file";
import type { Source } from "../../sources/source";
import { showSource } from "../load";
import { mishap, source } from "../state";

/** The file that is shown, and where the page's own recordings are. */
const opened = signal<{ name: string; home: Source | null } | null>(null);
/** How much of a file has been read; null: none is being read. */
const reading = signal<number | null>(null);
/** Whether a file hangs over the page. */
const over = signal(false);

/** Read a file and show what it holds. What is shown stays where it holds nothing. */
async function open(file: File): Promise<void> {
  mishap.value = "";
  reading.value = 0;
  try {
    const found = await fileSource(file, (share) => (reading.value = share));
    if (!(await found.recordings()).length) throw new Error(`${file.name} holds no recording.`);
    const home = opened.peek()?.home ?? source.peek();
    await showSource(found);
    opened.value = { name: file.name, home };
  } catch (error) {
    mishap.value = error instanceof Error ? error.message : "The file cannot be read.";
  } finally {
    reading.value = null;
  }
}

export function OpenFile() {
  const field = useRef<HTMLInputElement>(null);
  return (
    <>
      <button onClick={() => field.current?.click()} disabled={reading.value !== null}>Open a file…</button>
      <input ref={field} type="file" accept=".html,.htm,.json,.jsonl" hidden data-testid="file"
        onChange={(event) => {
          const [file] = event.currentTarget.files ?? [];
          event.currentTarget.value = "";
          if (file) void open(file);
        }} />
    </>
  );
}

/** Takes files that are dropped anywhere on the page. */
export function DropTarget() {
  useEffect(() => {
    const holdsFile = (event: DragEvent): boolean => event.dataTransfer?.types.includes("Files") ?? false;
    const hang = (event: DragEvent): void => {
      if (!holdsFile(event)) return;
      event.preventDefault();
      over.value = true;
    };
    const leave = (event: DragEvent): void => {
      if (event.relatedTarget === null) over.value = false;
    };
    const drop = (event: DragEvent): void => {
      if (!holdsFile(event)) return;
      event.preventDefault();
      over.value = false;
      const [file] = event.dataTransfer?.files ?? [];
      if (file) void open(file);
    };
    addEventListener("dragover", hang);
    addEventListener("dragleave", leave);
    addEventListener("drop", drop);
    return () => {
      removeEventListener("dragover", hang);
      removeEventListener("dragleave", leave);
      removeEventListener("drop", drop);
    };
  }, []);
  if (reading.value !== null) return <p class="note" role="status">Reading the file… {percent(reading.value)}</p>;
  return over.value ? <div class="drop"><p>Drop the file to show it. It is read here and sent nowhere.</p></div> : null;
}

/** Says which file is shown, with the way back. */
export function FileNote() {
  const file = opened.value;
  if (!file || source.value === file.home) return null;
  const back = async (): Promise<void> => {
    opened.value = null;
    if (file.home) await showSource(file.home);
  };
  return (
    <p class="note row" role="status" data-testid="file-note">
      <span class="grow">This is {file.name} of your disk. Nothing of it was sent; a link to it does not work elsewhere.</span>
      {file.home && <button onClick={() => void back()}>Back to {file.home.kind === "server" ? "the server's recordings" : "this page's recordings"}</button>}
    </p>
  );
}
