// Choosing the recording that is shown.
import { grouped } from "../../charts/group";
import type { Recording } from "../../model/records";
import { setQuery } from "../router";
import { fresh, nameOf } from "../sharing/named";
import { current, joined, recordings, setWindow } from "../state";
import { daysOf, joinedName, serverOf } from "../together";
import { detailsOf, titleOf } from "./words";

export function Picker() {
  const list = recordings.value;
  if (!list.length) return null;
  const shown = (joined.value ?? current.value)?.recording;
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
      {shown && !list.includes(shown) && <option value={nameOf(shown)}>{shown.title}{shown.joined ? "" : " (deleted)"}</option>}
      <Together list={list} shown={shown?.joined ?? ""} />
      {list.map((one) => (
        <option key={nameOf(one)} value={nameOf(one)}>{titleOf(one)} · {detailsOf(one)}</option>
      ))}
    </select>
  );
}

/** Several recordings as one: those that are made now, those of a day, and those of a server on a day. */
function Together({ list, shown }: { list: readonly Recording[]; shown: string }) {
  const live = list.filter((one) => one.live);
  const offers = live.length > 1 ? [{ text: `All that are live (${live.length})`, list: live }] : [];
  for (const { day, list: own } of daysOf(list)) {
    offers.push({ text: `All of ${day} (${own.length})`, list: own });
    const servers = grouped(own, serverOf);
    if (servers.size > 1) for (const [name, some] of servers) if (some.length > 1) offers.push({ text: `${name} on ${day} (${some.length})`, list: some });
  }
  const choices = offers.map((one) => ({ text: one.text, name: joinedName(one.list) })).filter(({ name }) => name !== shown);
  if (!choices.length) return null;
  return <optgroup label="Several as one">{choices.map(({ text, name }) => <option key={text} value={name}>{text}</option>)}</optgroup>;
}
