// The page's address: a view, what it shows, and the query that all views share, in the hash.
import { computed, signal } from "@preact/signals";

export interface Route {
  view: string;
  /** What stands behind the view's name, decoded: #/decision/REQUEST/AT. */
  path: string[];
  query: Record<string, string>;
}

/** What a hash says; an empty one is the overview. */
export function parse(hash: string): Route {
  const [path, query] = hash.replace(/^#?\/?/, "").split("?", 2);
  const [view, ...rest] = path.split("/").map(decoded);
  return { view: view || "overview", path: rest, query: Object.fromEntries(new URLSearchParams(query ?? "")) };
}

/** The hash of a route; empty values are left out. */
export function format(route: Route): string {
  const path = [route.view, ...route.path].map(encodeURIComponent).join("/");
  const set = Object.entries(route.query).filter(([, value]) => value !== "");
  const query = new URLSearchParams(set).toString();
  return `#/${path}${query ? `?${query}` : ""}`;
}

const inBrowser = typeof location !== "undefined";
export const route = signal<Route>(parse(inBrowser ? location.hash : ""));
const kept = computed(() => route.value.query);

if (inBrowser) addEventListener("hashchange", () => (route.value = parse(location.hash)));

/** The address of another view; the shared query stays, except where `query` says otherwise. */
export function link(view: string, path: string[] = [], query: Record<string, string> = {}): string {
  return format({ view, path, query: { ...kept.value, ...query } });
}

/** Go to another view; it can be left with the browser's "back". */
export function go(view: string, path: string[] = [], query: Record<string, string> = {}): void {
  location.hash = link(view, path, query);
}

/** Change the query in place, without an entry in the browser's history. */
export function setQuery(query: Record<string, string>): void {
  const next: Route = { ...route.peek(), query: { ...route.peek().query, ...query } };
  const hash = format(next);
  if (hash === format(route.peek())) return;
  if (inBrowser) history.replaceState(null, "", hash);
  route.value = parse(hash);
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
