// Decisions: what was chosen, how wrong the estimate was, who held blocks while another waited.
import { describe, expect, it } from "vitest";
import { Pause } from "../src/model/pause";
import type { Entry, PauseEntry } from "../src/model/records";
import { Trace } from "../src/model/trace";
import { blockers, mainState } from "../src/views/request/blockers";
import { cheapest, chosenOf, errorOf, estimateOf, impossible } from "../src/views/decision/chosen";
import { secondsByState } from "../src/views/request/lanetable";
import { sorted } from "../src/views/decision/list";
import { handlingOf, outcomeOf, whyOf } from "../src/views/decision/words";
import { lackedOf } from "../src/views/request/lacks";

function pauseOf(end: Partial<PauseEntry>): Pause {
  const pause = new Pause("a", end.at ?? 1);
  pause.end = { kind: "pause", request: "a", at: 1, ...end };
  return pause;
}

describe("a choice", () => {
  it("is what came of the pause, and what its lane shows while it is open", () => {
    expect(chosenOf(pauseOf({ handling: "swap" }), undefined)).toBe("swap");
    expect(chosenOf(pauseOf({ handling: "none" }), undefined)).toBeNull();
    const trace = new Trace();
    trace.add([
      { kind: "opening", request: "a", at: 1 },
      { kind: "lanes", request: ["a", "a"], state: ["paused", "dropped"], at: [1, 2] },
    ]);
    expect(chosenOf(trace.pauses[0], trace.byRequest.get("a"))).toBe("discard");
  });

  it("had a least price among those that were possible", () => {
    expect(cheapest({ preserve: 4, discard: 2, swap: null })).toBe("discard");
    expect(cheapest({ preserve: null })).toBeNull();
    expect(cheapest(null)).toBeNull();
  });

  it("says why an alternative had none", () => {
    const pause = new Pause("a", 1);
    pause.opening = { kind: "opening", request: "a", at: 1, inputs: { swap_pays: true, host_free: 0 } };
    expect(impossible("swap", pause)).toContain("no free blocks");
  });

  it("was made on an estimate that was off by a factor", () => {
    expect(errorOf(1, 2.1)).toBe("2.1× too short");
    expect(errorOf(30, 1)).toBe("30× too long");
    expect(errorOf(1, 1.05)).toContain("within");
    expect(errorOf(null, 1)).toBe("");
  });

  it("says nothing of an estimate where it was broken off before", () => {
    const short = { predicted_seconds: 5, pause_seconds: 0.1 };
    expect(estimateOf(pauseOf({ ...short, outcome: "followed" }))).toBe("50× too long");
    expect(estimateOf(pauseOf({ ...short, outcome: "ended" }))).toBe("");
    expect(estimateOf(pauseOf({ predicted_seconds: 5, pause_seconds: 600, outcome: "ended" }))).toContain("too short");
  });
});

describe("the cost of a pause", () => {
  const known = { pause_seconds: 2, queue_seconds: 3, cost: 8.5, queue_cost: 7.4, work_cost: 0, regret: 8.4, hindsight: { swap: 0.1 } } as const;

  it("has the queue's part apart, and lasts until the request ran", () => {
    const pause = pauseOf({ ...known, wanted_seconds: 4, wanted_requests: 1, wanted_by: [["b", 4]] });
    expect(pause.parts).toEqual({ paused: expect.closeTo(1.1), queued: 7.4, work: 0 });
    expect([pause.wholeSeconds, pause.needless, pause.free]).toEqual([5, false, false]);
  });

  it("is needless where nobody wanted what was computed again", () => {
    expect(pauseOf({ ...known, queue_cost: 0, work_cost: 8.5, wanted_seconds: 0 }).needless).toBe(true);
  });

  it("is not shown where an earlier version left the queue out", () => {
    const pause = pauseOf({ ...known, queue_cost: undefined, wanted_seconds: 0 });
    expect([pause.pricedOtherwise, pause.regret, pause.cost, pause.parts]).toEqual([true, null, null, null]);
  });
});

describe("blockers", () => {
  const lanes = (request: string, ...rows: [state: string, at: number, blocks: number][]): Entry => ({
    kind: "lanes", request: rows.map(() => request), state: rows.map((row) => row[0]), at: rows.map((row) => row[1]), blocks: rows.map((row) => row[2]),
  });

  it("held blocks within the wait, and are told apart by how many for how long", () => {
    const trace = new Trace();
    trace.add([
      lanes("me", ["waiting", 10, 0], ["prefill", 20, 9]),
      lanes("runs", ["decode", 0, 4], ["ended", 15, 0]),
      lanes("paused", ["decode", 0, 10], ["paused", 12, 10], ["dropped", 16, 0], ["ended", 30, 0]),
      lanes("queued", ["waiting", 5, 7], ["ended", 40, 0]),
      lanes("before", ["decode", 0, 50], ["ended", 10, 0]),
      lanes("behind", ["decode", 20, 50]),
    ]);
    const found = blockers(trace, "me", 10, 20);
    expect(found.map((one) => [one.lane.id, one.blockSeconds, one.meanBlocks, one.seconds])).toEqual([
      ["paused", 60, 10, 6], ["runs", 20, 4, 5],
    ]);
    expect(found.map(mainState)).toEqual([5, 4]);
  });

  it("go on holding while their lanes are open", () => {
    const trace = new Trace();
    trace.add([lanes("me", ["waiting", 1, 0]), lanes("other", ["decode", 0, 3])]);
    expect(blockers(trace, "me", 1, 4)[0].blockSeconds).toBe(9);
  });
});

describe("words", () => {
  it("say what was lacked, most often first, and why blocks were taken", () => {
    expect(lackedOf({ blocks: 2, slots: 5 }).map((one) => one.steps)).toEqual([5, 2]);
    expect(lackedOf(undefined)).toEqual([]);
    expect(lackedOf({ line: 1 })[0].what).toContain("in line behind");
    expect(whyOf("deadline")).toContain("deadline");
    expect(whyOf("something new")).toBe("something new");
    expect(whyOf(undefined)).toBe("");
  });
});

describe("what became of a pause", () => {
  const became = (end: Partial<PauseEntry>): string[] => [outcomeOf(pauseOf(end)), handlingOf(pauseOf(end))];

  it("is told from how it ended, since only a resume has a handling", () => {
    expect(became({ outcome: "resumed", handling: "swap" })).toEqual(["resumed", "swapped"]);
    expect(became({ outcome: "followed", handling: "none" })).toEqual(["followed by a new request", "left to the follow-up"]);
    expect(became({ outcome: "ended", handling: "none", pause_seconds: 2 })).toEqual(["no follow-up came", "freed"]);
  });

  it("is not that nobody came where the last of its KV was taken before", () => {
    const end = { outcome: "ended", handling: "none", pause_seconds: 0.16532379699 } as const;
    expect(became({ ...end, decisions: [[0.0239, "swap", 1, "admit"], [0.165324, "discard", 0, "running"]] })[0]).toContain("freed before");
    expect(became({ ...end, decisions: [[0.0239, "swap", 1, "admit"]] })[0]).toBe("no follow-up came");
  });
});

describe("tables", () => {
  it("sort pauses by a column, and leave equal ones in time order", () => {
    const list = [pauseOf({ at: 3, regret: 1 }), pauseOf({ at: 1, regret: 5 }), pauseOf({ at: 2, regret: 1 })];
    expect(sorted(list, "regret", true).map((pause) => pause.at)).toEqual([1, 2, 3]);
    expect(sorted(list, "at", true).map((pause) => pause.at)).toEqual([3, 2, 1]);
  });

  it("count a lane's seconds by state", () => {
    const trace = new Trace();
    trace.add([{ kind: "lanes", request: ["a", "a", "a"], state: ["waiting", "decode", "ended"], at: [1, 2, 5] }]);
    const seconds = secondsByState(trace.lanes[0], 100);
    expect([seconds[0], seconds[4], seconds.reduce((a, b) => a + b, 0)]).toEqual([1, 3, 4]);
  });
});
