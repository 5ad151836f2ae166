// What quantities are called, and how their values are written.
import { duration, number, percent } from "../../format";
import type { Quantity } from "../../model/outcomes";

interface Words {
  name: string;
  meaning: string;
  value: (value: number | null | undefined) => string;
}

const yesNo = (value: number | null | undefined): string => (value === 1 ? "yes" : value === 0 ? "no" : percent(value));

export const WORDS: Record<Quantity, Words> = {
  decode_tokens: { name: "Tokens", meaning: "Tokens that a segment decodes until it calls a tool or ends", value: number },
  calls_left: { name: "Calls left", meaning: "Calls that the session still makes", value: number },
  pause_seconds: { name: "Next pause", meaning: "How long the next call pauses the request", value: duration },
  ends_now: { name: "Ends now", meaning: "Whether the session ends with this segment", value: percent },
  ends_within_3: { name: "3 calls or fewer", meaning: "Whether the session makes at most 3 further calls", value: percent },
  long_pause: { name: "Pause over 30 s", meaning: "Whether the next call pauses the request for more than 30 s", value: percent },
};

/** What came, in words: an event came or it did not. */
export function cameOf(quantity: Quantity, actual: number | undefined): string {
  if (actual === undefined) return "–";
  return WORDS[quantity].value === percent ? yesNo(actual) : WORDS[quantity].value(actual);
}
