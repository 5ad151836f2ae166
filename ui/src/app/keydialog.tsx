// Asks for the API key when the server wants one.
import { useEffect, useRef } from "preact/hooks";
import { storeKey, storedKey } from "../sources/key";
import { refresh } from "./load";
import { phase, problem } from "./state";

export function KeyDialog() {
  const dialog = useRef<HTMLDialogElement>(null);
  const field = useRef<HTMLInputElement>(null);
  const asked = phase.value === "key";
  useEffect(() => {
    if (asked) dialog.current?.showModal();
    else dialog.current?.close();
  }, [asked]);
  const submit = (event: Event): void => {
    event.preventDefault();
    storeKey(field.current?.value.trim() ?? "");
    phase.value = "starting";
    void refresh();
  };
  // A second Escape closes a dialog whatever its page says; without a key there is nothing to see behind it.
  const again = (): void => {
    if (phase.peek() === "key") dialog.current?.showModal();
  };
  return (
    <dialog ref={dialog} aria-labelledby="key-title" onCancel={(event) => event.preventDefault()} onClose={again}>
      <form onSubmit={submit}>
        <h2 id="key-title">API key</h2>
        <p class="soft">
          {problem.value || (
            <>
              {storedKey() ? "The server does not accept the key. Enter the one" : "The server wants the key"} that it was
              started with (<code>--api-key</code>).
            </>
          )}{" "}
          It is kept until this tab is closed.
        </p>
        <p class="row" style={{ marginTop: "12px" }}>
          <input ref={field} type="password" class="grow" aria-label="API key" autocomplete="off" required />
          <button class="primary" type="submit">Show recordings</button>
        </p>
      </form>
    </dialog>
  );
}
