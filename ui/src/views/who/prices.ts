// What usage costs, by prices that the reader sets: in the address, and remembered by the browser.
import { param } from "../../app/address";
import type { Usage } from "./usage";

/** Prices of a million tokens, of a million block-seconds, and of a GPU's hour. */
export const PRICES = [
  ["input", "input", "a million prompt tokens that were not cached"],
  ["cached", "cached", "a million cached tokens; without it they cost as input"],
  ["output", "output", "a million decoded tokens"],
  ["blocks", "block·s", "a million block-seconds"],
  ["gpu", "GPU-hour", "an hour of one GPU in which steps ran"],
  ["gpus", "GPUs", "how many GPUs one engine has; 1 unless it is set"],
] as const;
export type Price = (typeof PRICES)[number][0];
export type Prices = Partial<Record<Price, number>>;

const KEY = "caesura-prices";
const MILLION = 1e6;
const HOUR = 3600;

/** As "input:3,output:15". */
export const told = param("wh.price", "");

/** The prices that a text tells; what is no price is left out. */
export function pricesOf(text: string): Prices {
  const found: Prices = {};
  for (const part of text.split(",")) {
    const [name, value] = part.split(":");
    const amount = Number.parseFloat(value);
    const known = PRICES.find(([price]) => price === name)?.[0];
    if (known && Number.isFinite(amount) && amount >= 0) found[known] = amount;
  }
  return found;
}

/** Set one price; null: it has none. */
export function setPrice(name: Price, value: number | null): void {
  const prices = { ...pricesOf(told.peek()) };
  delete prices[name];
  if (value !== null && value >= 0) prices[name] = value;
  told.value = Object.entries(prices).map(([each, amount]) => `${each}:${amount}`).join(",");
  try {
    localStorage.setItem(KEY, told.peek());
  } catch {
    // A page from a file may have no storage; the address has them.
  }
}

/** Take the prices that were set last, where the address has none. */
export function recallPrices(): void {
  if (told.peek()) return;
  try {
    told.value = localStorage.getItem(KEY) ?? "";
  } catch {
    // As above.
  }
}

/** What usage costs: all prices that are set add up. Null where none is. */
export function costOf(usage: Usage, prices: Prices): number | null {
  if (!PRICES.some(([name]) => name !== "gpus" && prices[name])) return null;
  const { input = 0, output = 0, blocks = 0, gpu = 0, gpus = 1 } = prices;
  const tokens = (usage.prompt - usage.cached) * input + usage.cached * (prices.cached ?? input) + usage.decoded * output;
  return tokens / MILLION + (usage.blockSeconds * blocks) / MILLION + (usage.seconds * gpus * gpu) / HOUR;
}
