// What the page says when there is nothing to draw, and what to do about it.
import { count, counted, percent } from "../format";
import { refresh } from "./load";
import { OpenFile } from "./recordings/openfile";
import { current } from "./state";

export function Starting() {
  return <div class="center"><p class="muted" role="status">Reading the recording…</p></div>;
}

/** While a recording comes in, how much of it has; `total` is 0 where that is not known. */
export function Reading({ done, total }: { done: number; total: number }) {
  const share = total ? Math.min(1, done / total) : 0;
  return (
    <div class="center">
      <div class="card" data-testid="reading">
        <p class="muted" role="status">{total ? `Reading the recording, ${percent(share)} of ${counted(total, "entry", "entries")}` : `Reading the recording, ${counted(done, "entry", "entries")} so far`}</p>
        <div class="progress" role="progressbar" aria-label="Reading the recording" aria-valuemin={0} aria-valuemax={100} aria-valuenow={total ? Math.round(share * 100) : undefined}>
          <span style={{ transform: `scaleX(${share})` }} />
        </div>
      </div>
    </div>
  );
}

export function Failed({ text }: { text: string }) {
  return (
    <div class="center">
      <div class="card panel" role="alert">
        <h2>This cannot be shown</h2>
        <p>{text}</p>
        <div class="row"><button class="primary" onClick={() => void refresh()}>Try again</button></div>
      </div>
    </div>
  );
}

export function NothingRecorded() {
  return (
    <div class="center">
      <div class="card panel">
        <h2>Nothing has been recorded</h2>
        <p>
          <code>caesura serve</code> records unless it is started with <code>--no-trace</code>. Start it without that
          option, send a request, and look again.
        </p>
        <div class="row"><button class="primary" onClick={() => void refresh()}>Look again</button><OpenFile /></div>
      </div>
    </div>
  );
}

/** A recording without entries; `live`: they may still come. Of those that there are, `broken` cannot be read. */
export function NothingYet({ live, broken }: { live: boolean; broken: number }) {
  if (!live && broken) {
    const which = broken === 1 ? "The only entry of this recording" : `None of the ${count(broken)} entries of this recording`;
    return <Failed text={`${which} can${broken === 1 ? "not" : ""} be read: they are damaged, or not what Caesura records. Choose another one above.`} />;
  }
  if (!live) return <Failed text="This recording has no entries: nobody sent a request while it was made. Choose another one above." />;
  const model = current.value?.recording.about.model ?? "MODEL";
  const origin = typeof location === "undefined" ? "" : location.origin;
  return (
    <div class="center">
      <div class="card panel">
        <h2>Waiting for the first request</h2>
        <p>The server records. What it is sent shows here at once. A first request, with a tool that the server runs:</p>
        <pre>{`curl ${origin}/v1/chat/completions \\
  -H 'Content-Type: application/json' \\
  -d '{"model": "${String(model)}", "server_tools": ["calculator"],
       "messages": [{"role": "user", "content": "What is 17 * 23?"}]}'`}</pre>
        <p class="muted small">With an API key, add <code>-H 'Authorization: Bearer KEY'</code>.</p>
      </div>
    </div>
  );
}
