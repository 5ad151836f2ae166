// A button that copies the address of what is shown.
import { signal } from "@preact/signals";
import { current, mishap, settleWindow } from "../state";

/** How long the button says that it has copied, in milliseconds. */
const SAID = 2000;
const copied = signal(false);
let timer: ReturnType<typeof setTimeout> | undefined;

export function CopyLink() {
  if (!current.value) return null;
  return (
    <>
      <button onClick={() => void copy()} title="Copy a link to this view, window and selection of this recording" data-testid="copy-link">
        {copied.value ? "Copied" : "Copy link"}
      </button>
      <span class="hidden-visually" role="status">{copied.value ? "The link was copied." : ""}</span>
    </>
  );
}

async function copy(): Promise<void> {
  settleWindow();
  mishap.value = "";
  copied.value = await written(location.href);
  if (!copied.value) mishap.value = "The browser does not let the page copy. Copy the link from the address bar.";
  clearTimeout(timer);
  timer = setTimeout(() => (copied.value = false), SAID);
}

/** Whether the text is on the clipboard now. */
async function written(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return selected(text);
  }
}

/** The old way, for pages over plain HTTP, which have no `navigator.clipboard`. */
function selected(text: string): boolean {
  const before = document.activeElement as HTMLElement | null;
  const area = document.createElement("textarea");
  area.value = text;
  area.readOnly = true;
  area.className = "hidden-visually";
  document.body.append(area);
  area.select();
  try {
    return document.execCommand("copy");
  } catch {
    return false;
  } finally {
    area.remove();
    before?.focus();
  }
}
