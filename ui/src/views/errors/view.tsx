// What failed, how often, since when, and where: one row for all failures that have the same in common.
import { useMemo } from "preact/hooks";
import { param } from "../../app/address";
import { link } from "../../app/router";
import { type Loaded, current, timeWindow, version, wholeOf } from "../../app/state";
import { largest } from "../../charts/stats";
import { count, counted, day, moment } from "../../format";
import { type Failing, failingIn, spread } from "../../model/failing";
import { useMeasured } from "../overview/paced";
import { visible } from "../session/content";
import { idBegins } from "../timeline/rows/facts";
import { around } from "../timeline/zoom";
import "./errors.css";

/** Failures are counted anew once in so many milliseconds at most. */
const PACE = 1000;
const BINS = 40;
/** Rows that are shown: what differs in every message is no pattern, and nobody reads more. */
const MOST = 300;

const COLUMNS = [
  ["kind", "what failed"], ["pattern", "message"], ["where", "tool or route"], ["tenant", "key"], ["server", "server"], ["times", "times"], ["first", "first"], ["last", "last"],
] as const;
type Column = (typeof COLUMNS)[number][0];
const NUMERIC: readonly Column[] = ["times", "first", "last"];
const order = param("er.sort", "-times");
const search = param("er.q", "");
/** Of several servers. */
const serverBy = param("er.server", "");

/** The column and the direction that the address names; an unknown column is as none. */
function ordering(): { by: Column; down: boolean } {
  const [, minus, name] = /^(-?)(.*)$/.exec(order.value)!;
  const by = COLUMNS.find(([column]) => column === name)?.[0];
  return by ? { by, down: minus === "-" } : { by: "times", down: true };
}

/** The rows in which all words stand, or ids of whose requests begin so, in order. */
export function listed(rows: readonly Failing[], words: string, by: Column, down: boolean): Failing[] {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const sign = down ? -1 : 1;
  return rows
    .filter((row) => wanted.every((word) => row.id.toLowerCase().includes(word) || row.all.some((one) => one.ids.some((id) => idBegins(id, word)))))
    .sort((a, b) => sign * (a[by] < b[by] ? -1 : a[by] > b[by] ? 1 : 0) || b.times - a.times);
}

export function ErrorsView() {
  const loaded = current.value;
  const made = useMeasured(version.value, PACE);
  const window = timeWindow.value;
  const { t0, t1 } = window ?? wholeOf(loaded?.trace ?? null);
  const rows = useMemo(() => (loaded ? failingIn(loaded.trace, t0, t1) : []), [loaded, made, window?.t0, window?.t1]);
  if (!loaded) return null;
  return <Errors loaded={loaded} rows={rows} t0={t0} t1={t1} marked={window !== null} />;
}

interface Props {
  loaded: Loaded;
  rows: readonly Failing[];
  t0: number;
  t1: number;
  marked: boolean;
}

function Errors({ loaded, rows, t0, t1, marked }: Props) {
  const { by, down } = ordering();
  const servers = [...new Set(loaded.trace.parts.map((part) => part.server))];
  const several = loaded.trace.parts.length > 1;
  const own = several && serverBy.value ? rows.filter((row) => row.server === serverBy.value) : rows;
  const shown = listed(own, search.value, by, down);
  const times = shown.reduce((sum, row) => sum + row.times, 0);
  return (
    <div class="view er" data-testid="errors">
      <div class="row">
        <h2>Errors</h2>
        <span class="soft" role="status">
          {rows.length ? `${counted(times, "failure")} of ${counted(shown.length, "sort")}` : "nothing failed"}
          {marked ? " in the marked stretch" : ""}, {day(t0)} to {moment(t1, 0)}
        </span>
        <span class="grow" />
        {several && (
          <select aria-label="server" value={serverBy.value} data-testid="by-server" onChange={(event) => (serverBy.value = event.currentTarget.value)}>
            <option value="">every server</option>
            {servers.map((name) => <option key={name} value={name}>{visible(name)}</option>)}
          </select>
        )}
        <input type="search" placeholder="Search kind, message, tool, key, request id" aria-label="Search errors" value={search.value}
          onInput={(event) => (search.value = event.currentTarget.value)} />
      </div>
      {rows.length === 0
        ? <p class="soft">{noneOf(loaded, marked)}</p>
        : shown.length === 0
          ? <p class="soft">{own.length ? "No failure has these words. Change the search." : "Nothing failed on this server."}</p>
          : <Table rows={shown} several={several} t0={t0} t1={t1} by={by} down={down} />}
      {rows.length > 0 && !loaded.recording.content && (
        <p class="muted small">Tools' own messages are contents, which this recording does not hold: <code>--trace-content</code> records them.</p>
      )}
    </div>
  );
}

function noneOf({ trace }: Loaded, marked: boolean): string {
  if (marked) return "Nothing failed in the marked stretch: no run, no turn, no call, and no request to the server.";
  return trace.runs.length || trace.http.length
    ? "Nothing failed: no run, no turn, no call, and no request to the server."
    : "This recording has no runs and no requests to a server, whose failures would stand here.";
}

interface TableProps {
  rows: readonly Failing[];
  /** Whether there are several servers. */
  several: boolean;
  t0: number;
  t1: number;
  by: Column;
  down: boolean;
}

function Table({ rows, several, t0, t1, by, down }: TableProps) {
  const turn = (column: Column): void => {
    order.value = `${(by === column ? !down : NUMERIC.includes(column)) ? "-" : ""}${column}`;
  };
  return (
    <div class="panel er-table">
      <table>
        <caption class="hidden-visually">Failures by what they have in common</caption>
        <thead><tr>
          {COLUMNS.filter(([column]) => several || column !== "server").map(([column, name]) => (
            <th key={column} class={NUMERIC.includes(column) ? "num" : ""} aria-sort={by === column ? (down ? "descending" : "ascending") : "none"}>
              <button class="plain sort" onClick={() => turn(column)}>{name}{by === column && <span aria-hidden="true">{down ? " ↓" : " ↑"}</span>}</button>
            </th>
          ))}
          <th>when</th>
          <th><span class="hidden-visually">timeline</span></th>
        </tr></thead>
        <tbody>{rows.slice(0, MOST).map((row) => <Row key={row.id} row={row} several={several} t0={t0} t1={t1} />)}</tbody>
      </table>
      {rows.length > MOST && <p class="muted small">{counted(rows.length - MOST, "further sort")}: narrow them down by the search.</p>}
    </div>
  );
}

function Row({ row, several, t0, t1 }: { row: Failing; several: boolean; t0: number; t1: number }) {
  const latest = row.all.at(-1)!;
  return (
    <tr data-testid="error-row">
      <th scope="row"><span class="bad">{visible(row.kind)}</span>{row.code && " "}{row.code && <span class="chip mono">{visible(row.code)}</span>}</th>
      <td class="er-message" title={visible(latest.message) || undefined}>{row.pattern ? visible(row.pattern) : <span class="muted">–</span>}</td>
      <td class="mono">{visible(row.where) || <span class="muted">–</span>}</td>
      <td>{visible(row.tenant) || <span class="muted">–</span>}</td>
      {several && <td data-testid="error-server">{visible(row.server)}</td>}
      <td class="num"><b>{count(row.times)}</b></td>
      <td class="num">{moment(row.first, 0)}</td>
      <td class="num">{moment(row.last, 0)}</td>
      <td><Spark row={row} t0={t0} t1={t1} /></td>
      <td><a href={timelineOf(row)} aria-label={`${visible(row.kind)} in the timeline`}>timeline</a></td>
    </tr>
  );
}

/** The timeline from the first to the last of them, with the requests in which they were; a refusal has none. */
function timelineOf(row: Failing): string {
  const { t0, t1 } = around(row.first, Math.max(row.last, row.first + 1), 0.2);
  const filtered = row.all.some((one) => one.run) ? row.id : "";
  return link("timeline", [], { q: "", tool: "", state: "", outcome: "", "tl.error": "", "tl.failure": filtered, "tl.server": row.server, t0: String(t0), t1: String(t1) });
}

function Spark({ row, t0, t1 }: { row: Failing; t0: number; t1: number }) {
  const bins = spread(row.all, t0, t1, BINS);
  const most = largest(bins, 1);
  const said = `${counted(row.times, "time")} from ${moment(row.first, 0)} to ${moment(row.last, 0)}, ${count(most)} at most in a fortieth of the time`;
  return (
    <svg class="er-spark" role="img" aria-label={said} viewBox={`0 0 ${BINS * 3} 18`} width={BINS * 3} height="18">
      {bins.map((each, i) => each > 0 && <rect key={i} x={i * 3} width="2.4" y={18 - Math.max(2, (18 * each) / most)} height={Math.max(2, (18 * each) / most)} />)}
    </svg>
  );
}
