// How recordings are told apart in lists.
import { count, day, duration } from "../../format";
import type { Recording } from "../../model/records";

/** When a recording was made, how long it took, and how many sessions it holds, as far as that is known. */
export function detailsOf(one: Recording): string {
  const parts = [day(one.started).replace(/ \d{4},/, ",")];
  if (one.ended !== null) parts.push(duration(one.ended - one.started));
  if (one.sessions) parts.push(`${count(one.sessions)} ${one.sessions === 1 ? "session" : "sessions"}`);
  else if (!one.entries) parts.push("empty");
  return parts.join(", ");
}

/** The title with its marks. */
export const titleOf = (one: Recording): string => `${one.pinned ? "★ " : ""}${one.title}${one.live ? " (live)" : ""}`;

/** What a recording is called where several are offered: with its time where others have the same title. */
export function labelOf(one: Recording, list: readonly Recording[]): string {
  const alone = list.every((other) => other === one || other.title !== one.title);
  return `${titleOf(one)}${alone ? "" : `, ${day(one.started).replace(/ \d{4},/, ",")}`}`;
}
