// A button that copies the address of what is shown.
import { signal } from "@preact/signals";
import { current, mishap, settleWindow } from "../state";
import { toClipboard } from "./clipboard";

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
  copied.value = await toClipboard(location.href);
  if (!copied.value) mishap.value = "The browser does not let the page copy. Copy the link from the address bar.";
  clearTimeout(timer);
  timer = setTimeout(() => (copied.value = false), SAID);
}
