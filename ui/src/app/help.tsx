// The keys of the view that is shown, and those of every view, in a dialog.
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { VIEWS, viewOf } from "../views/registry";
import { type Key, PAGE_KEYS, helpOpen, listenToPage } from "./keys";
import { route } from "./router";
import { current } from "./state";

export function HelpDialog() {
  const dialog = useRef<HTMLDialogElement>(null);
  const open = helpOpen.value;
  useLayoutEffect(listenToPage, []); // with the first frame, or a key that is pressed at once is lost
  useEffect(() => {
    if (open) dialog.current?.showModal();
    else dialog.current?.close();
  }, [open]);
  const { title, keys = [] } = VIEWS[viewOf(route.value.view, current.value?.trace ?? null)];
  return (
    <dialog ref={dialog} aria-labelledby="help-title" onClose={() => (helpOpen.value = false)}>
      <h2 id="help-title">Keys: {title}</h2>
      {keys.length > 0 && <Keys keys={keys} />}
      <h3 class="help-all">In every view</h3>
      <Keys keys={PAGE_KEYS} />
      <form method="dialog" class="row" style={{ marginTop: "12px", justifyContent: "end" }}>
        <button>Close</button>
      </form>
    </dialog>
  );
}

function Keys({ keys }: { keys: readonly Key[] }) {
  return (
    <table>
      <tbody>
        {keys.map((one) => (
          <tr key={one.what}>
            <td>{one.keys.map((key) => <><kbd>{key}</kbd>{" "}</>)}</td>
            <td>{one.what}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
