// The keys of the page, and how a view tells its own: the help lists both.
import { signal } from "@preact/signals";

/** One or several keys, or a key and a gesture, and what they do. */
export interface Key {
  keys: readonly string[];
  what: string;
}

export const helpOpen = signal(false);

/** What works in every view. */
export const PAGE_KEYS: readonly Key[] = [
  { keys: ["PgUp", "PgDn", "Home", "End"], what: "scroll" },
  { keys: ["/"], what: "search, where the view has a search field" },
  { keys: ["Tab", "Enter"], what: "go to what can be pressed, and press it" },
  { keys: ["?"], what: "these keys" },
];

const ACTIONS: Record<string, () => boolean> = {
  "?": () => (helpOpen.value = true),
  "/": search,
  PageDown: () => scroll((one) => one.scrollTop + page(one)),
  PageUp: () => scroll((one) => one.scrollTop - page(one)),
  Home: () => scroll(() => 0),
  End: () => scroll((one) => one.scrollHeight),
};

/** Whether a key is meant for what has the focus, a dialog, or the browser. */
export function isTaken(event: KeyboardEvent): boolean {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return true;
  return (event.target as HTMLElement | null)?.closest?.("input, select, textarea") != null;
}

/** Listen to the keys of every view. Returns how to stop. */
export function listenToPage(): () => void {
  const pressed = (event: KeyboardEvent): void => {
    const action = Object.hasOwn(ACTIONS, event.key) ? ACTIONS[event.key] : null;
    if (!action || isTaken(event) || (action !== ACTIONS["?"] && action !== search && scrollsItself(event.target))) return;
    if (action()) event.preventDefault();
  };
  addEventListener("keydown", pressed);
  return () => removeEventListener("keydown", pressed);
}

function search(): boolean {
  const field = document.querySelector<HTMLInputElement>("main input[type=search]");
  field?.focus();
  return field !== null;
}

const page = (element: Element): number => element.clientHeight * 0.9;
const scrolls = (element: Element): boolean =>
  element.scrollHeight > element.clientHeight + 1 && /auto|scroll/.test(getComputedStyle(element).overflowY);

/** Whether the browser scrolls something for this target anyway. */
function scrollsItself(target: EventTarget | null): boolean {
  for (let one = target as Element | null; one && one !== document.body; one = one.parentElement) {
    if (scrolls(one)) return true;
  }
  return false;
}

/** Scroll the view's main part; the browser only knows of the whole page, which never scrolls. */
function scroll(to: (element: Element) => number): boolean {
  const found = [...document.querySelectorAll("main .tl-scroller, main .sessions-rows, main .view")].find(scrolls);
  if (found) found.scrollTop = to(found);
  return found !== undefined;
}
