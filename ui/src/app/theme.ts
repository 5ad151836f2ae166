// The theme: the system's, or the one that the reader has chosen.
import { signal } from "@preact/signals";

export type Theme = "auto" | "light" | "dark";
const KEY = "caesura-theme";
const inBrowser = typeof matchMedia !== "undefined";

export const theme = signal<Theme>(stored());
/** Changes whenever the colours do: what is drawn on a canvas depends on it. */
export const palette = signal<"light" | "dark">("light");

const system = inBrowser ? matchMedia("(prefers-color-scheme: dark)") : null;

/** Show the theme that is chosen, and follow the system where none is. */
export function startTheme(): void {
  apply();
  system?.addEventListener("change", apply);
}

export function setTheme(chosen: Theme): void {
  theme.value = chosen;
  try {
    localStorage.setItem(KEY, chosen);
  } catch {
    // A page from a file may have no storage; the choice then lasts as long as the page.
  }
  apply();
}

function apply(): void {
  const dark = theme.value === "dark" || (theme.value === "auto" && system?.matches === true);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  palette.value = dark ? "dark" : "light";
}

function stored(): Theme {
  try {
    const value = localStorage.getItem(KEY);
    return value === "light" || value === "dark" ? value : "auto";
  } catch {
    return "auto";
  }
}
