// Recordings by their names in the address, which stay right when the server starts again.
import { isWallClock } from "../../format";
import type { Recording } from "../../model/records";

/** In the address: whatever the server records at the time when the link is opened. */
export const LIVE = "live";

/** The name of a recording in the address: its number, and when it began, since a new file counts from 1 again. */
export function nameOf(one: Recording): string {
  if (one.joined) return one.joined;
  const id = String(one.id);
  return isWallClock(one.started) ? `${id}-${Math.floor(one.started).toString(36)}` : id;
}

/** The number in a name, without when the recording began. */
export const numberOf = (name: string): string => name.replace(/-[0-9a-z]{6}$/, "");

/** The recording with this name, or with this number alone; undefined where it is gone. */
export function named(list: readonly Recording[], name: string): Recording | undefined {
  if (name === LIVE) return list.find((one) => one.own) ?? list.find((one) => one.live);
  return list.find((one) => nameOf(one) === name) ?? list.find((one) => String(one.id) === name);
}

/** The recording that an address without a name means: the server's own, else the newest. */
export const usual = (list: readonly Recording[]): Recording | undefined => list.find((one) => one.own) ?? list[0];

/** The query that shows another recording: what belongs to one is not carried on to the next. */
export const fresh = (rec: string): Record<string, string> => ({ rec, part: "", t0: "", t1: "", sel: "", pause: "" });
