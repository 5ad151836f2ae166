// What waits for the reader: looked at again and again while the page shows this server's own recording.
import { computed, signal } from "@preact/signals";
import { current, phase, version } from "../app/state";
import type { Run } from "../model/spans";
import type { Trace } from "../model/trace";
import { saidOf, whoOf } from "../model/who";
import { askedIn } from "../views/session/names";
import type { Desk, Listed } from "./desk";
import type { Item, Said } from "./items";

/** Seconds between two looks, while something waits and while nothing does. */
const BUSY = 2;
const IDLE = 4;

const listed = signal<Listed>({ items: [], recording: null });
/** What became of items that are shown, by id; forgotten when the list is closed. */
export const endings = signal<ReadonlyMap<string, { item: Item; text: string }>>(new Map());
/** Why the last answer to an item was not taken, by id. */
export const refusals = signal<ReadonlyMap<string, string>>(new Map());
/** Ids of the items whose answer is under way. */
export const sending = signal<ReadonlySet<string>>(new Set());
/** Whether the server answered the last look. */
export const reachable = signal(true);
/** Whether the list is open. */
export const open = signal(false);

/** Whether the shown recording is, or has, the one that this server makes now: no other can be acted on. */
export const mine = computed(() => {
  const loaded = current.value;
  const all = loaded ? (loaded.parts ?? [loaded]) : [];
  return all.some(({ recording }) => recording.live && listed.value.recording === String(recording.id));
});

/** What can be answered, the oldest first. */
export const waiting = computed<readonly Item[]>(() => (mine.value ? listed.value.items : []));

/** What is shown: what can be answered, and what no longer can. */
export const shown = computed<readonly Item[]>(() => {
  if (!mine.value) return [];
  const over = [...endings.value.values()].map((one) => one.item);
  const ids = new Set(over.map((one) => one.id));
  return [...over, ...waiting.value.filter((one) => !ids.has(one.id))].sort((a, b) => a.created - b.created);
});

/** The request that each shown item belongs to, as far as the recording tells. */
export const requests = computed<ReadonlyMap<string, string>>(() => {
  version.value;
  const trace = current.value?.trace;
  const found = new Map<string, string>();
  for (const item of trace ? shown.value : []) {
    const request = requestOf(trace!, item.session);
    if (request) found.set(item.id, request);
  }
  return found;
});

/** Who asks for each shown item, and the question that led to it. */
export const askers = computed<ReadonlyMap<string, { who: string; question: string }>>(() => {
  version.value;
  const trace = current.value?.trace;
  const found = new Map<string, { who: string; question: string }>();
  for (const item of trace ? shown.value : []) {
    const run = runOf(trace!, item.session);
    if (run) found.set(item.id, { who: saidOf(whoOf(trace!.spans, run)), question: askedIn(run) });
  }
  return found;
});

const runOf = (trace: Trace, session: string): Run | undefined =>
  trace.runs.findLast((one) => one.span.attributes?.["gen_ai.response.id"] === session);

/** Return the request that runs the completion `session`; the newest runs are looked at first. */
export function requestOf(trace: Trace, session: string): string | undefined {
  const run = runOf(trace, session);
  for (const turn of run?.turns.toReversed() ?? []) {
    const lane = trace.laneOfSpan(turn);
    if (lane) return lane.id;
  }
  const first = run?.span.attributes?.["caesura.request.id"];
  return typeof first === "string" ? trace.laneOf(first)?.id : undefined;
}

let desk: Desk | null = null;
let look: () => void = () => undefined;

/** Look at `given` until the returned function is called. */
export function watch(given: Desk): () => void {
  desk = given;
  let over = false;
  let timer = 0;
  let running = false;
  const turn = async (): Promise<void> => {
    clearTimeout(timer);
    if (over || running) return;
    running = true;
    const goesOn = document.hidden || phase.peek() !== "ready" || (await take(given));
    running = false;
    if (over || !goesOn) return;
    const seconds = listed.peek().items.length ? BUSY : IDLE;
    timer = setTimeout(() => void turn(), seconds * 1000) as unknown as number;
  };
  look = () => void turn();
  document.addEventListener("visibilitychange", look);
  void turn();
  return () => {
    over = true;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", look);
    desk = null;
    listed.value = { items: [], recording: null };
  };
}

/** Read the list once; whether to look again. */
async function take(from: Desk): Promise<boolean> {
  let found: Listed | null;
  try {
    found = await from.listed();
  } catch {
    reachable.value = false;
    return true;
  }
  reachable.value = true;
  if (!found) return false;
  const there = new Set(found.items.map((one) => one.id));
  const gone = listed.peek().items.filter((one) => !there.has(one.id));
  const same = !gone.length && there.size === listed.peek().items.length && found.recording === listed.peek().recording;
  if (!same) listed.value = found;
  for (const item of gone) if (!endings.peek().has(item.id) && !sending.peek().has(item.id)) end(item, await from.ending(item.id));
  return true;
}

function end(item: Item, text: string): void {
  endings.value = new Map(endings.peek()).set(item.id, { item, text });
}

/** Answer an item; what came of it is in `endings` or `refusals`. */
export async function say(item: Item, said: Said): Promise<void> {
  if (!desk || sending.peek().has(item.id) || endings.peek().has(item.id)) return;
  sending.value = new Set(sending.peek()).add(item.id);
  const { settled, text, wantsKey } = await desk.settle(item, said);
  if (settled) end(item, text);
  refusals.value = new Map(refusals.peek()).set(item.id, settled ? "" : text);
  const left = new Set(sending.peek());
  left.delete(item.id);
  sending.value = left;
  if (wantsKey) {
    open.value = false;
    phase.value = "key";
  }
  look();
}

/** Forget what is over, when the reader has closed the list. */
export function forget(): void {
  endings.value = new Map();
  refusals.value = new Map();
}
