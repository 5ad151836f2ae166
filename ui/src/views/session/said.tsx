// Text that a model, a tool or a user has written: always text, never markup, and no link in it.
import { useState } from "preact/hooks";
import { count } from "../../format";
import { visible } from "./content";

/** Longer texts are folded, in characters and in lines. */
const LONG = 1600;
const LINES = 24;

/** Show a text as it is; a long one can be unfolded. */
export function Said({ text, mono = false }: { text: string; mono?: boolean }) {
  const [open, setOpen] = useState(false);
  const shown = open ? text : folded(text);
  const cut = shown.length < text.length;
  return (
    <>
      <pre class={mono ? "said mono" : "said"} dir="auto">{visible(shown)}{cut && "…"}</pre>
      {(cut || open) && (
        <button class="plain small unfold" aria-expanded={open} onClick={() => setOpen(!open)}>
          {open ? "Show less" : `Show all ${count(text.length)} characters`}
        </button>
      )}
    </>
  );
}

function folded(text: string): string {
  const lines = text.split("\n", LINES + 1);
  const few = lines.length > LINES ? lines.slice(0, LINES).join("\n") : text;
  return few.slice(0, LONG);
}
