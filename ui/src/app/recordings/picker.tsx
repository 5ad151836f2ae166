// Choosing the recording that is shown.
import { setQuery } from "../router";
import { fresh, nameOf } from "../sharing/named";
import { current, recordings, setWindow } from "../state";
import { detailsOf, titleOf } from "./words";

export function Picker() {
  const list = recordings.value;
  if (!list.length) return null;
  const shown = current.value?.recording;
  const choose = (name: string): void => {
    setWindow(null);
    setQuery(fresh(name));
  };
  return (
    <select
      class="picker" aria-label="Recording" value={shown ? nameOf(shown) : ""}
      onChange={(event) => choose(event.currentTarget.value)}
    >
      {!shown && <option value="">choose a recording…</option>}
      {shown && !list.includes(shown) && <option value={nameOf(shown)}>{shown.title} (deleted)</option>}
      {list.map((one) => (
        <option key={nameOf(one)} value={nameOf(one)}>{titleOf(one)} · {detailsOf(one)}</option>
      ))}
    </select>
  );
}
