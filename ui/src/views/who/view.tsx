// Who used the engine: one row for each tenant, user, session, tool or model, with what it took and costs.
import { useEffect, useMemo, useState } from "preact/hooks";
import { param, toggle } from "../../app/address";
import { link } from "../../app/router";
import { type Loaded, current, nowOf, timeWindow, version, wholeOf } from "../../app/state";
import { blockSeconds, brief, count, counted, day, duration, moment, number, percent, short } from "../../format";
import { useMeasured } from "../overview/paced";
import { visible } from "../session/content";
import { PRICES, type Prices, costOf, pricesOf, recallPrices, setPrice, told } from "./prices";
import { DIMENSIONS, type Dimension, type Usage, type UsageRow, type Used, usedBy } from "./usage";
import "./who.css";

/** All is summed up anew once in so many milliseconds at most. */
const PACE = 1000;
/** Rows that are shown: the search narrows down more. */
const MOST = 300;
const RULE = "A step's seconds are divided by its query tokens: those computed first, again, and decoded; requests in the same state have equal parts. "
  + "Block-seconds are the blocks that a request held, paused or not, by the time; a block that several share counts for each. A turn's tokens count when it ends.";
/** "Now" is who is there at this moment, and what was used in so many seconds before it. */
const NOW = 10;
/** Records come in batches: a moment that ends the last of them is in it, in seconds. */
const CLOSE = 1e-3;
const NOW_RULE = `Blocks and requests are those of this moment, and the engine's seconds are of the last ${NOW} s. `
  + "A request's blocks are those of its last change of state: one that decodes has grown since. A block that several share counts for each.";
const TOOLS = " A tool has its pauses until the request decodes again, and the tokens of its results.";

interface Column {
  key: string;
  name: string;
  meaning: string;
  of: (usage: Usage, prices: Prices) => number | null;
  text: (value: number | null) => string;
}
const tokens = (value: number | null): string => short(value === null ? null : Math.round(value));

const COLUMNS: readonly Column[] = [
  { key: "requests", name: "requests", meaning: "Requests of the engine that were here", of: (one) => one.requests, text: count },
  { key: "prompt", name: "prompt", meaning: "Tokens of the whole inputs of turns, cached ones included", of: (one) => one.prompt, text: tokens },
  { key: "cached", name: "cached", meaning: "Prompt tokens that were in the cache", of: (one) => (one.told ? one.cached : null), text: tokens },
  { key: "share", name: "cached share", meaning: "Cached tokens by the prompt tokens of which that is known", of: (one) => (one.told ? one.cached / one.told : null), text: percent },
  { key: "decoded", name: "decoded", meaning: "Tokens of answers", of: (one) => one.decoded, text: tokens },
  { key: "recomputed", name: "recomputed", meaning: "Tokens of context that were computed again behind pauses", of: (one) => one.recomputed, text: tokens },
  { key: "blocks", name: "memory", meaning: "Blocks held by the time", of: (one) => one.blockSeconds, text: blockSeconds },
  { key: "seconds", name: "engine", meaning: "Its shares of the engine's steps", of: (one) => one.seconds, text: duration },
  { key: "failures", name: "failures", meaning: "Runs, turns and calls that failed, and requests that were refused", of: (one) => one.failures, text: count },
  { key: "cost", name: "cost", meaning: "By the prices that are set; they add up", of: costOf, text: number },
];

/** What is told of this moment. */
const nowColumns = ({ total, steps }: Used): readonly Column[] => [
  { key: "running", name: "running", meaning: "Requests that are computed or copied now", of: (one) => one.running, text: count },
  { key: "paused", name: "paused", meaning: "Requests that wait for a tool or a person now", of: (one) => one.paused, text: count },
  { key: "waiting", name: "waiting", meaning: "Requests in the queue now", of: (one) => one.waiting, text: count },
  { key: "held", name: "blocks", meaning: "Blocks that they hold now", of: (one) => one.held, text: count },
  { key: "heldShare", name: "of all held", meaning: "The part of all blocks that anybody holds now", of: (one) => (total.held ? one.held / total.held : null), text: percent },
  { key: "seconds", name: "engine", meaning: `Its shares of the engine's steps of the last ${NOW} s`, of: (one) => one.seconds, text: duration },
  { key: "secondsShare", name: "of the engine", meaning: "The part of those steps", of: (one) => (steps ? one.seconds / steps : null), text: percent },
];
const NOBODY: Record<Dimension, string> = {
  tenant: "without a key's name", user: "no user named", session: "no session", tool: "no tool: questions and decoding", model: "model not known",
  server: "no server",
};

const wanted = param<Dimension>("wh.by", "tenant");
const order = param("wh.sort", "-seconds");
const nowOrder = param("wh.now-sort", "-held");
const ofNow = toggle("wh.now");
const search = param("wh.q", "");
const dimensionsOf = (): readonly Dimension[] => ((current.value?.trace.parts.length ?? 0) > 1 ? [...DIMENSIONS, "server"] : DIMENSIONS);
const dimensionOf = (): Dimension => (dimensionsOf().includes(wanted.value) ? wanted.value : "tenant");

/** A column, or the names; an unknown one is as the usual. */
interface Ordering {
  by: string;
  column: Column | undefined;
  down: boolean;
}

function ordering(columns: readonly Column[], text: string, usual: string): Ordering {
  const [, minus, name] = /^(-?)(.*)$/.exec(text)!;
  const column = columns.find(({ key }) => key === name);
  if (column || name === "name") return { by: name, column, down: minus === "-" };
  return { by: usual, column: columns.find(({ key }) => key === usual), down: true };
}

/** The rows in order; those without a value come last either way. */
function sorted(rows: readonly UsageRow[], { column, down }: Ordering, prices: Prices): UsageRow[] {
  const sign = down ? -1 : 1;
  if (!column) return [...rows].sort((a, b) => sign * a.name.localeCompare(b.name));
  const value = (row: UsageRow): number => column.of(row.whole, prices) ?? sign * Infinity;
  return [...rows].sort((a, b) => (value(a) === value(b) ? a.name.localeCompare(b.name) : sign * (value(a) - value(b))));
}

/** Whether a row or one below it has all the words in its names. */
export function mentions(row: UsageRow, words: readonly string[]): boolean {
  const said = `${row.name} ${row.tenant}`.toLowerCase();
  return words.every((word) => said.includes(word)) || row.children.some((child) => mentions(child, words));
}

export function WhoView() {
  const loaded = current.value;
  const isNow = ofNow.value && loaded?.recording.live === true;
  const time = useSeconds(isNow);
  const made = useMeasured(`${version.value} ${time}`, PACE);
  const window = timeWindow.value;
  const dimension = dimensionOf();
  useEffect(recallPrices, []);
  const stretch = useMemo(() => {
    const now = loaded ? nowOf(loaded) : 0;
    if (isNow) return { t0: now - NOW, t1: now + CLOSE, now };
    return { ...(window ?? wholeOf(loaded?.trace ?? null)), now };
  }, [loaded, made, isNow, window?.t0, window?.t1]);
  const used = useMemo(() => {
    if (!loaded) return null;
    const { t0: from, t1: until, now } = stretch;
    return usedBy(dimension, { trace: loaded.trace, from, until, now, blockTokens: blockTokensOf(loaded), moment: isNow ? now : undefined });
  }, [loaded, stretch, dimension]);
  if (!loaded || !used) return null;
  return <Who used={used} dimension={dimension} {...stretch} marked={window !== null} live={loaded.recording.live} isNow={isNow} />;
}

/** Counts seconds while it is `on`: what is used now changes without entries, too. */
function useSeconds(on: boolean): number {
  const [seconds, setSeconds] = useState(0);
  useEffect(() => {
    const timer = on ? setInterval(() => setSeconds((before) => before + 1), PACE) : undefined;
    return () => clearInterval(timer);
  }, [on]);
  return seconds;
}

function blockTokensOf({ recording: { about } }: Loaded): number {
  return typeof about.block_size === "number" ? about.block_size : 0;
}

interface Shown {
  used: Used;
  dimension: Dimension;
  t0: number;
  t1: number;
  /** Whether the reader marked the stretch. */
  marked: boolean;
  live: boolean;
  isNow: boolean;
}

function Who({ used, dimension, t0, t1, marked, live, isNow }: Shown) {
  const prices = pricesOf(told.value);
  const columns = isNow ? nowColumns(used) : COLUMNS.filter(({ key }) => key !== "cost" || costOf(used.total, prices) !== null);
  const setting = isNow ? nowOrder : order;
  const ordered = ordering(columns, setting.value, isNow ? "held" : "seconds");
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const here = isNow ? used.rows.filter(({ whole: { running, paused, waiting, seconds } }) => running + paused + waiting + seconds > 0) : used.rows;
  const all = sorted(here.filter((row) => mentions(row, words)), ordered, prices);
  // What no tool did is no answer to which tool it was.
  const rows = dimension === "tool" ? [...all.filter((row) => row.name), ...all.filter((row) => !row.name)] : all;
  const turn = (key: string): void => {
    setting.value = `${(ordered.by === key ? !ordered.down : key !== "name") ? "-" : ""}${key}`;
  };
  return (
    <div class="view wh" data-testid="who-view">
      <div class="row">
        <h2>Who</h2>
        <div class="row" role="group" aria-label="By what">
          {dimensionsOf().map((each) => (
            <button key={each} aria-pressed={each === dimension} onClick={() => (wanted.value = each)}>{each}</button>
          ))}
        </div>
        {live && <button aria-pressed={isNow} title="Who uses the engine at this moment" onClick={() => (ofNow.value = !isNow)} data-testid="who-now">now</button>}
        <span class="soft" role="status">
          {isNow ? `${counted(rows.length, dimension)} at ${moment(t1, 0)}` : `${counted(rows.length, dimension)}${marked ? " in the marked stretch" : ""}, ${day(t0)} to ${moment(t1, 0)}`}
        </span>
        <span class="grow" />
        <input type="search" placeholder={`Search by ${dimension}`} aria-label="Search who" value={search.value}
          onInput={(event) => (search.value = event.currentTarget.value)} />
      </div>
      {!isNow && <PriceFields prices={prices} />}
      {rows.length
        ? <Table rows={rows} used={used} dimension={dimension} columns={columns} ordered={ordered} turn={turn} prices={prices} />
        : <p class="soft">{isNow ? "Nobody uses the engine now." : "Nobody used the engine here."}</p>}
      <p class="muted small" data-testid="who-rule">
        {isNow ? NOW_RULE : RULE}{dimension === "tool" && TOOLS} Steps ran for {duration(used.steps)}{used.steps > 0 && `, of which ${percent(used.total.seconds / used.steps)} is told apart`}.
      </p>
    </div>
  );
}

function PriceFields({ prices }: { prices: Prices }) {
  return (
    <div class="wh-prices" role="group" aria-label="Prices">
      {PRICES.map(([name, label, meaning]) => (
        <label key={name} title={`The price of ${meaning}`}>
          {label}
          <input type="number" min="0" step="any" value={prices[name] ?? ""} aria-label={`Price: ${meaning}`} data-testid={`price-${name}`}
            onChange={({ currentTarget: { value } }) => setPrice(name, value === "" ? null : Number(value))} />
        </label>
      ))}
      <span class="muted small">prices of a million tokens or block-seconds, and of an hour; those that are set add up</span>
    </div>
  );
}

interface TableProps {
  rows: readonly UsageRow[];
  used: Used;
  dimension: Dimension;
  columns: readonly Column[];
  ordered: Ordering;
  /** Sort by a column; the one by which it is sorted is turned round. */
  turn: (key: string) => void;
  prices: Prices;
}

function Table({ rows, used, dimension, columns, ordered, turn, prices }: TableProps) {
  const { by, down } = ordered;
  const [open, setOpen] = useState<ReadonlySet<string>>(new Set());
  const fold = (id: string): void => {
    const next = new Set(open);
    if (!next.delete(id)) next.add(id);
    setOpen(next);
  };
  const flat = (list: readonly UsageRow[], depth: number): { row: UsageRow; depth: number }[] =>
    list.flatMap((row) => [{ row, depth }, ...(open.has(row.id) ? flat(sorted(row.children, ordered, prices), depth + 1) : [])]);
  const all = flat(rows, 0);
  const head = (key: string, name: string, meaning: string) => (
    <th key={key} class={key === "name" ? "" : "num"} title={meaning} aria-sort={by === key ? (down ? "descending" : "ascending") : "none"}>
      <button class="plain sort" onClick={() => turn(key)}>{name}{by === key && <span aria-hidden="true">{down ? " ↓" : " ↑"}</span>}</button>
    </th>
  );
  return (
    <div class="panel wh-table">
      <table>
        <caption class="hidden-visually">Usage by {dimension}</caption>
        <thead><tr>
          {head("name", dimension, "Who it was, by name or id")}
          {columns.map(({ key, name, meaning }) => head(key, name, meaning))}
          <th><span class="hidden-visually">requests</span></th>
        </tr></thead>
        <tbody>
          {all.slice(0, MOST).map(({ row, depth }) => (
            <tr key={`${depth} ${row.id}`} data-testid="who-row">
              <th scope="row" title={visible(row.name)} style={{ paddingLeft: `${16 * depth}px` }}>
                {row.children.length > 0 && (
                  <button class="plain wh-fold" aria-expanded={open.has(row.id)} aria-label={`Sub-agents of ${visible(row.name)}`} onClick={() => fold(row.id)}>{open.has(row.id) ? "▾" : "▸"}</button>
                )}
                {row.name ? visible(brief(row.name, 40)) : <span class="muted">{NOBODY[dimension]}</span>}
                {row.tenant && <span class="muted small"> {visible(row.tenant)}</span>}
                {row.children.length > 0 && <span class="muted small"> with {counted(row.children.length, "sub-agent")}</span>}
              </th>
              {columns.map(({ key, of, text }) => <td key={key} class={key === "failures" && row.whole.failures ? "num bad" : "num"} data-testid={key}>{text(of(row.whole, prices))}</td>)}
              <td>{row.name && <Links row={row} dimension={dimension} />}</td>
            </tr>
          ))}
          {all.length > 1 && (
            <tr data-testid="who-total">
              <th scope="row">all together</th>
              {columns.map(({ key, of, text }) => <td key={key} class="num">{key === "requests" && dimension === "tool" ? "–" : text(of(used.total, prices))}</td>)}
              <td />
            </tr>
          )}
        </tbody>
      </table>
      {all.length > MOST && <p class="muted small">{counted(all.length - MOST, "further row")}: narrow them down by the search.</p>}
    </div>
  );
}

function Links({ row, dimension }: { row: UsageRow; dimension: Dimension }) {
  const said = visible(brief(row.name, 40));
  if (!row.named) return <a href={link("session", [row.name])} aria-label={`${said} in the sessions`}>session</a>;
  return <a href={timelineOf(row, dimension)} aria-label={`${said} in the timeline`}>timeline</a>;
}

const FILTERS: Record<Dimension, string> = { tenant: "tl.tenant", user: "tl.user", session: "tl.session", tool: "tool", model: "tl.model", server: "tl.server" };

/** The timeline with the requests of a row. */
function timelineOf(row: UsageRow, dimension: Dimension): string {
  const clear = { q: "", tool: "", state: "", outcome: "", "tl.error": "", "tl.failure": "", "tl.tenant": "", "tl.user": "", "tl.session": "", "tl.model": "" };
  return link("timeline", [], { ...clear, "tl.tenant": row.tenant, [FILTERS[dimension]]: row.name });
}
