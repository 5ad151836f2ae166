// What-ifs: which sessions a stretch has, and the command that replays it where there is no server.
import { expect, test } from "vitest";
import { arrivedIn } from "../src/whatif/view";
import { KNOWN, command } from "../src/whatif/server";
import { ENTRIES, traceOf } from "./world";

test("a stretch has the sessions that arrived in it", () => {
  const trace = traceOf(ENTRIES);
  expect(arrivedIn(trace, null)).toBe(2);
  expect(arrivedIn(trace, { t0: 3, t1: 5 })).toBe(1);
  expect(arrivedIn(trace, { t0: 15, t1: 20 })).toBe(0);
});

test("without a server the command to run is shown, and nothing of it can be another command", () => {
  const said = command("3", { t0: 1.5, t1: 2 }, { handling: "preserve", ranking: "fcfs" });
  expect(said).toContain("caesura replay --recording 3 --from 1.500 --to 2.000 -p stock,caesura:handling=preserve,ranking=fcfs");
  expect(command("a'; rm -rf /", null, {})).toContain("--recording 'a; rm -rf /' -p");
  for (const [what, names] of Object.entries(KNOWN)) expect(names.length, what).toBeGreaterThan(3);
});
