// Around a view: when it breaks, the reader is told, and the other views keep working.
import { signal } from "@preact/signals";
import { Component, type ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { toClipboard } from "./sharing/clipboard";
import { current } from "./state";

interface Props {
  /** The view's title. */
  name: string;
  children: ComponentChildren;
}

/** What broke while nothing was rendered: on a canvas, or in what a batch of entries set off. */
const beside = signal<unknown>(null);

/** Show the reader that the view has broken; for errors that no rendering meets. */
export function broke(error: unknown): void {
  // The first one says most: those after it are often its consequences.
  beside.value ??= error;
}

/** Draws its children, or why they cannot be drawn. */
export class Boundary extends Component<Props, { error: unknown }> {
  override state: { error: unknown } = { error: null };

  static override getDerivedStateFromError(error: unknown): { error: unknown } {
    return { error: error ?? new Error("nothing was said of it") };
  }

  override componentWillUnmount(): void {
    beside.value = null;
  }

  override render() {
    const error = this.state.error ?? beside.value;
    if (error === null) return this.props.children;
    const again = (): void => {
      beside.value = null;
      this.setState({ error: null });
    };
    return <Broken name={this.props.name} error={error} again={again} />;
  }
}

function Broken({ name, error, again }: { name: string; error: unknown; again: () => void }) {
  const details = detailsOf(name, error);
  const [copied, setCopied] = useState("");
  const copy = async (): Promise<void> => {
    const done = await toClipboard(details);
    setCopied(done ? "Copied." : "The browser does not let the page copy: mark the details and copy them.");
  };
  return (
    <div class="center">
      <div class="card panel" role="alert" data-testid="broken">
        <h2>{name} cannot be drawn</h2>
        <p>Something in this view broke. It is an error of the page, and the other views go on. The details help to mend it.</p>
        <div class="row">
          <button class="primary" onClick={again}>Try again</button>
          <button onClick={() => void copy()}>Copy details</button>
          <span class="muted small" role="status">{copied}</span>
        </div>
        <details><summary>Details</summary><pre>{details}</pre></details>
      </div>
    </div>
  );
}

/** What one needs to know in order to find the error. */
function detailsOf(name: string, error: unknown): string {
  const loaded = current.peek();
  const facts = [
    `view: ${name}`,
    `address: ${typeof location === "undefined" ? "" : location.hash}`,
    `recording: ${loaded ? `${loaded.recording.source}, ${loaded.trace.lanes.length} requests, ${loaded.trace.broken} broken entries` : "none"}`,
    `browser: ${typeof navigator === "undefined" ? "" : navigator.userAgent}`,
  ];
  const said = error instanceof Error ? `${error.name}: ${error.message}\n${error.stack ?? ""}` : String(error);
  return `${facts.join("\n")}\n\n${said}`;
}
