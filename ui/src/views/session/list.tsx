// The list of sessions: search, sort, and what each took at a glance.
import { useMemo, useState } from "preact/hooks";
import { type Param, param } from "../../app/address";
import { link } from "../../app/router";
import { StateBar } from "../../charts/statebar";
import { largest } from "../../charts/stats";
import { blockSeconds, brief, count, counted, duration, moment, short } from "../../format";
import { REGRET } from "./chip";
import { visible } from "./content";
import type { Loop } from "../../model/loops";
import type { Trace } from "../../model/trace";
import { PARTS, type Part } from "../../model/who";
import { type Item, type SortKey, listed } from "./items";
import { Refused } from "./refused";

/** Columns of who asked, each only where anybody is named. */
const WHO: readonly { key: Part; name: string; meaning: string }[] = [
  { key: "tenant", name: "tenant", meaning: "The name of the API key" },
  { key: "user", name: "user", meaning: "The user that the request names, or a digest of it" },
  { key: "session", name: "name", meaning: "The session, by the name that its client chose" },
];

const COLUMNS: readonly { key: SortKey; name: string; meaning: string; text: (item: Item) => string }[] = [
  { key: "start", name: "arrival", meaning: "When it arrived", text: (item) => moment(item.start, 1) },
  { key: "duration", name: "duration", meaning: "From its arrival to its end, tools included", text: (item) => duration(item.duration) },
  { key: "tokens", name: "tokens", meaning: "The longest context that it had", text: (item) => (item.tokens ? short(item.tokens) : "–") },
  { key: "calls", name: "calls", meaning: "Tool calls: those that the runtime carried out, or that the engine has paused for, whichever are more", text: (item) => count(item.calls) },
  { key: "regret", name: "regret", meaning: REGRET, text: (item) => blockSeconds(item.regret) },
  { key: "errors", name: "errors", meaning: "What failed: runs, turns and calls, calls that could not be read or that a person denied, clients that left. Each counts once", text: (item) => item.failures || "0" },
  { key: "looped", name: "repeated", meaning: "Tokens of calls that the session had made before with the same arguments, where it did so three times or more: the model's and the results'", text: (item) => (item.loops.length ? short(item.looped) : "–") },
];

/** What is said of calls that were made again and again. */
export const loopSaid = ({ tool, times, tokens }: Loop): string =>
  `${visible(tool)} was called ${count(times)} times with the same arguments. The calls behind the first took ${counted(tokens, "token")}.`;

interface RowProps {
  item: Item;
  picked: boolean;
  longest: number;
  href: string;
  parts: readonly Part[];
}

/** A row; the same one comes again as long as nothing of it is new. */
function Row({ item, picked, longest, href, parts }: RowProps) {
  return useMemo(() => (
    <tr aria-selected={picked} data-testid="session-row">
      <th scope="row">
        <a href={href} aria-current={picked ? "true" : undefined} title={visible(`${item.title} ${item.id}`.trim())} class={item.title ? "" : "mono"}>
          {item.title ? visible(item.title) : visible(brief(item.id, 22))}
        </a>
        {item.loops.map((loop) => <span key={loop.tool} class="chip bad" data-testid="loop" title={loopSaid(loop)}>{visible(loop.tool)} × {count(loop.times)}</span>)}
        {!item.title && item.tools && <span class="muted small session-tools">{visible(item.tools)}</span>}
        <StateBar seconds={item.seconds} share={item.duration / longest} />
      </th>
      {item.server && <td class="session-who" title={visible(item.server)}>{visible(brief(item.server, 18))}</td>}
      {parts.map((part) => <td key={part} class="session-who" title={visible(item.who[part])}>{visible(brief(item.who[part], 18))}</td>)}
      {COLUMNS.map(({ key, text }) => (
        <td key={key} class={key === "errors" && item.errors ? "num bad" : "num"}>{text(item)}</td>
      ))}
    </tr>
  ), [item, picked, longest, href, parts.join()]);
}

/** The length of the longest bar, in round steps: all bars would change with every second of the longest session. */
function scaleOf(seconds: number): number {
  const step = 10 ** Math.floor(Math.log10(Math.max(seconds, 1e-3))) / 2;
  return Math.ceil(seconds / step) * step;
}

/** The search and the order are kept in the address. */
const search = param("se.q", "");
const order = param("se.sort", "start.up");

function sortOf(text: string): { key: SortKey; ascending: boolean } {
  const [name, way] = text.split(".");
  const key = [...COLUMNS, ...WHO].find((column) => column.key === name)?.key ?? "start";
  return { key, ascending: way !== "down" };
}

/** Only the sessions of one tenant, user or named session. */
const chosenBy: Record<Part, Param> = { tenant: param("se.tenant", ""), user: param("se.user", ""), session: param("se.name", "") };

const serverBy = param("se.server", "");

const valuesOf = (items: Item[], part: Part): string[] => [...new Set(items.map((item) => item.who[part]))].filter(Boolean).sort();

/** Rows that are shown before more are asked for. */
const PAGE = 200;

export function SessionList({ items, picked, trace }: { items: Item[]; picked: Item | undefined; trace: Trace }) {
  const words = search.value;
  const sort = sortOf(order.value);
  const [most, setMost] = useState(PAGE);
  const several = trace.parts.length > 1;
  const asked = WHO.filter(({ key }) => items.some((item) => item.who[key]));
  const parts = asked.map(({ key }) => key);
  const chosen = parts.map((part) => chosenBy[part].value).join("\n");
  const rows = useMemo(
    () => listed(items.filter((item) => (!several || !serverBy.value || item.server === serverBy.value) && PARTS.every((part) => !chosenBy[part].value || item.who[part] === chosenBy[part].value)), words, sort.key, sort.ascending),
    [items, words, order.value, chosen, several, serverBy.value],
  );
  const longest = scaleOf(largest(items.map((item) => item.duration), 1e-3));
  const by = (key: SortKey): void =>
    void (order.value = `${key}.${(key === sort.key ? !sort.ascending : key === "start" || parts.includes(key as Part)) ? "up" : "down"}`);
  return (
    <nav class="sessions" aria-label="Sessions">
      <div class="sessions-bar">
        <input type="search" placeholder="Search questions, ids and tools" aria-label="Search sessions" value={words}
          data-testid="session-search" onInput={(event) => (search.value = event.currentTarget.value)} />
        <span class="muted small" role="status">{rows.length === items.length ? counted(items.length, "session") : `${count(rows.length)} of ${counted(items.length, "session")}`}</span>
      </div>
      {(asked.length > 0 || several) && (
        <div class="sessions-bar" role="group" aria-label="Who asked">
          {several && (
            <select aria-label="server" value={serverBy.value} data-testid="by-server" onChange={(event) => (serverBy.value = event.currentTarget.value)}>
              <option value="">every server</option>
              {[...new Set(trace.parts.map((part) => part.server))].map((name) => <option key={name} value={name}>{visible(name)}</option>)}
            </select>
          )}
          {asked.map(({ key, name }) => (
            <select key={key} aria-label={name} value={chosenBy[key].value} data-testid={`by-${key}`} onChange={(event) => (chosenBy[key].value = event.currentTarget.value)}>
              <option value="">every {name}</option>
              {valuesOf(items, key).map((value) => <option key={value} value={value}>{visible(value)}</option>)}
            </select>
          ))}
        </div>
      )}
      <div class="sessions-rows">
        <table>
          <caption class="hidden-visually">Sessions</caption>
          <thead><tr>
            <th>session</th>
            {several && <th>server</th>}
            {[...asked, ...COLUMNS].map(({ key, name, meaning }) => (
              <th key={key} class={parts.includes(key as Part) ? "" : "num"} title={meaning} aria-sort={sort.key === key ? (sort.ascending ? "ascending" : "descending") : "none"}>
                <button class="plain sort" onClick={() => by(key)}>
                  {name}{sort.key === key && <span aria-hidden="true">{sort.ascending ? " ↑" : " ↓"}</span>}
                </button>
              </th>
            ))}
          </tr></thead>
          <tbody>
            {rows.slice(0, most).map((item) => <Row key={item.id} item={item} picked={item.id === picked?.id} longest={longest} href={link("session", [item.id])} parts={parts} />)}
          </tbody>
        </table>
        {rows.length > most && <button onClick={() => setMost(most + PAGE)}>Show {count(Math.min(PAGE, rows.length - most))} more</button>}
        {!rows.length && <Refused trace={trace} id={words} />}
        {!rows.length && <p class="muted small">No session has these words in an id, a name or a tool.</p>}
      </div>
    </nav>
  );
}
