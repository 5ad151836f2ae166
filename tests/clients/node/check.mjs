// Checks of a server by Node libraries: what one is, and how it is run. It does as check.py does.

import { isDeepStrictEqual } from "node:util";

// The longest that one check may take; a loaded machine is slow.
const MAX_SECONDS = 240;

/** A field was taken, and had no effect. */
export class Ignored extends Error {}

/** A wrong answer. */
export class Wrong extends Error {}

export const CHECKS = [];

/** Register a function of a server, `{ url, v1, model }`, as a check of a library's feature. */
export function check(library, feature, run) {
  CHECKS.push({ library, feature, run });
}

/** Throw `Wrong` with both values unless they are equal. */
export function equal(found, expected) {
  if (!isDeepStrictEqual(found, expected)) {
    throw new Wrong(`${JSON.stringify(found)} instead of ${JSON.stringify(expected)}`);
  }
}

/** Throw `Wrong` unless a condition holds. */
export function holds(condition, what) {
  if (!condition) throw new Wrong(what);
}

/** Throw `Ignored` unless a field had its effect. */
export function honoured(condition, what) {
  if (!condition) throw new Ignored(what);
}

/** Run checks one after the other; hand each result on, as check.py's `Result` has it. */
export async function runAll(server, checks, hand) {
  for (const { library, feature, run } of checks) {
    hand({ library, feature, ...(await outcomeOf(run, server)) });
  }
}

async function outcomeOf(run, server) {
  try {
    await within(run(server));
    return { outcome: "pass", reason: "" };
  } catch (error) {
    if (process.env.CLIENTS_TRACEBACKS) console.error(error);
    if (error instanceof Ignored) return { outcome: "ignored", reason: error.message };
    const text = `${error?.message ?? error}`.split(/\s+/).join(" ");
    return { outcome: "fail", reason: error instanceof Wrong ? text : `${error?.name}: ${text}` };
  }
}

async function within(running) {
  let timer;
  const late = new Promise((_, reject) => {
    const error = new Wrong(`no end after ${MAX_SECONDS} seconds`);
    timer = setTimeout(() => reject(error), MAX_SECONDS * 1000);
  });
  try {
    await Promise.race([running, late]);
  } finally {
    clearTimeout(timer);
  }
}
