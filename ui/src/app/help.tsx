// The keys of the timeline, in a dialog.
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

export const helpOpen = signal(false);

const KEYS: [keys: string[], what: string][] = [
  [["←", "→"], "move in time"],
  [["+", "−"], "zoom in and out (also: mouse wheel)"],
  [["0"], "all of the recording"],
  [["z"], "zoom to the selected request (also: double-click)"],
  [["j", "k"], "next and previous request"],
  [["[", "]"], "previous and next pause of the selected request"],
  [["Enter"], "open the pause: prices, inputs, what became of it"],
  [["Esc"], "leave the selection"],
  [["/"], "search"],
  [["g"], "fold or unfold idle times"],
  [["w"], "only requests that were here within the window, or all"],
  [["f"], "follow what is live"],
  [["Shift", "drag"], "zoom to a stretch of time"],
  [["?"], "these keys"],
];

export function HelpDialog() {
  const dialog = useRef<HTMLDialogElement>(null);
  const open = helpOpen.value;
  useEffect(() => {
    if (open) dialog.current?.showModal();
    else dialog.current?.close();
  }, [open]);
  return (
    <dialog ref={dialog} aria-labelledby="help-title" onClose={() => (helpOpen.value = false)}>
      <h2 id="help-title">Keys of the timeline</h2>
      <table>
        <tbody>
          {KEYS.map(([keys, what]) => (
            <tr key={what}>
              <td>{keys.map((key) => <><kbd>{key}</kbd>{" "}</>)}</td>
              <td>{what}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <form method="dialog" class="row" style={{ marginTop: "12px", justifyContent: "end" }}>
        <button>Close</button>
      </form>
    </dialog>
  );
}
