// Run the checks against a server: `node checks.mjs URL MODEL [PART OF A NAME]...`
// It prints a line of JSON for each check.

import { CHECKS, runAll } from "./check.mjs";

// Libraries print, too: what they print goes to the errors.
console.log = console.info = console.warn = console.error;
// A promise that a check leaves alone must not end the run.
process.on("unhandledRejection", (error) => console.error(error));
globalThis.AI_SDK_LOG_WARNINGS = false;
await import("./ai_sdk.mjs");

const [url, model, ...parts] = process.argv.slice(2);
const chosen = CHECKS.filter(({ library, feature }) =>
  parts.every((part) => `${library} ${feature}`.includes(part)),
);
await runAll({ url, v1: `${url}/v1`, model }, chosen, (result) => {
  process.stdout.write(`${JSON.stringify(result)}\n`);
});
// A check that came too late may still wait.
process.exit();
