// The keys of the plan's chart, as the help tells them.
import type { Key } from "../../app/keys";

export const PLAN_KEYS: readonly Key[] = [
  { keys: ["←", "→"], what: "the block before or after it on the device, once the chart has the focus (Tab)" },
  { keys: ["↑", "↓"], what: "the block of another device at about the same time, from the plan to the run too" },
  { keys: ["Home", "End"], what: "the first and the last block of the device" },
];
