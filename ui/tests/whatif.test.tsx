// @vitest-environment happy-dom
// What-ifs: which sessions a stretch has, what replays came to, and the command that makes them without a server.
import { render } from "preact";
import { act } from "preact/test-utils";
import { expect, test } from "vitest";
import { Replays, against } from "../src/whatif/replays";
import { arrivedIn } from "../src/whatif/view";
import { EACH, type Job, KNOWN, RECORDED, choicesOf, command } from "../src/whatif/server";
import { find, page } from "./mounted";
import { ENTRIES, traceOf } from "./world";

test("a stretch has the sessions that arrived in it", () => {
  const trace = traceOf(ENTRIES);
  expect(arrivedIn(trace, null)).toBe(2);
  expect(arrivedIn(trace, { t0: 3, t1: 5 })).toBe(1);
  expect(arrivedIn(trace, { t0: 15, t1: 20 })).toBe(0);
});

test("without a server the command to run is shown, and nothing of it can be another command", () => {
  const choice = { handling: "preserve", ranking: RECORDED };
  const said = command("3", { t0: 1.5, t1: 2 }, choice, { ranking: "caesura:beta=50,x=1" });
  expect(said).toContain("caesura replay --recording 3 --from 1.500 --to 2.000 -p caesura:ranking='caesura:beta=50;x=1',handling=preserve ");
  expect(command("3", null, choice, { ranking: "$(rm -rf /)" })).toContain("-p caesura:handling=preserve --machine");
  expect(command("a'; rm -rf /", null, {}, {})).toContain("--recording 'a; rm -rf /' -p");
  for (const [what, names] of Object.entries(KNOWN)) expect(names.length, what).toBeGreaterThan(3);
});

test("each policy of a kind can be asked for at once, and what stays as recorded is not named", () => {
  const policies = { handling: ["swap", "ttl"], ranking: ["fcfs", "ssjf"] };
  expect(choicesOf({ handling: EACH, ranking: RECORDED }, policies)).toEqual([{ handling: "swap" }, { handling: "ttl" }]);
  expect(choicesOf({ handling: "swap", ranking: EACH }, policies)).toEqual([
    { handling: "swap", ranking: "fcfs" }, { handling: "swap", ranking: "ssjf" },
  ]);
});

const figures = (mean: number) => ({
  latency_mean: mean, latency_p50: mean, latency_p99: 2 * mean, ttft_mean: 0.1, ttft_p99: 0.2, recomputed: 10,
});

/** What was walked into: 8.37 s recorded, 3.65 s replayed as recorded, 5.11 s replayed under another handling. */
const JOB: Job = {
  recording: 1, since: 0, until: 9, state: "done", sessions: 186, done: 1, error: "", compared: 180,
  left_out: { "that had neither ended nor made a call": 9, "of which not all calls are recorded": 1 },
  doubts: ["The recorded engine had fair 'tenant'; a replay goes without it."], was: figures(8.37),
  replays: [
    { policies: { handling: "caesura", ranking: "fcfs" }, result: 7, ...figures(3.65), faster: 0, slower: 0 },
    { policies: { handling: "preserve", ranking: "fcfs" }, result: 8, ...figures(5.11), faster: 1, slower: 103 },
  ],
};

test("a replay is compared with the replay of the recorded policy, and never with the recording", async () => {
  await act(() => render(<Replays job={JOB} />, page));
  const rows = [...find("what-if-replays").querySelectorAll("tbody tr")].map((row) => row.textContent);
  expect(rows).toHaveLength(2);
  expect(rows[0]).toContain("replayed as recorded: handling caesura, ranking fcfs3.65 s");
  expect(rows[1]).toContain("1.4×, slower (1 session faster, 103 slower)");
  const [, compare] = page.querySelectorAll("a");
  expect(compare.getAttribute("href")).toContain("rec=7");
  expect(compare.getAttribute("href")).toContain("with=8");
  const error = find("what-if-error").textContent;
  expect(error).toContain("the recording has a mean latency of 8.37 s (p99 16.7 s), its replay 3.65 s (p99 7.30 s), 0.436×");
  expect(error).toContain("did not run as its calibration says");
  expect(page.textContent).not.toContain("better");
});

test("sessions that are not replayed are counted with the reason", async () => {
  await act(() => render(<Replays job={JOB} />, page));
  expect(find("what-if-left-out").textContent).toBe(
    "Not replayed: 9 sessions that had neither ended nor made a call; 1 session of which not all calls are recorded.",
  );
  expect(page.textContent).toContain("180 sessions compared");
  expect(page.textContent).toContain("The recorded engine had fair 'tenant'");
});

test("what differs by less than half a percent is the same, and what is not known is not said", () => {
  const [first] = JOB.replays;
  expect(against(first, { ...first, ...figures(3.66) })).toBe("the same (0 sessions faster, 0 slower)");
  expect(against(first, { ...first, ...figures(1.825) })).toContain("0.5×, faster");
  expect(against(first, { ...first, latency_mean: null })).toBe("");
});
