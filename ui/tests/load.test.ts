// What the page does when the recording that it follows ends with its server.
import { afterEach, expect, it, vi } from "vitest";
import { start } from "../src/app/load";
import { connection, current, recordings } from "../src/app/state";
import { recordingOf } from "../src/model/records";
import type { Source } from "../src/sources/source";

afterEach(() => vi.useRealTimers());

it("a server that stops is looked for until it makes another recording", async () => {
  vi.useFakeTimers();
  const [first, second] = [recordingOf({ id: 1, live: true }), recordingOf({ id: 2, live: true })];
  const third = recordingOf({ id: 3, live: true, title: "of another server" });
  const old = { ...first, live: false };
  const answers = [[first], null, [old], [second, old], [third, second, old]];
  let asked = 0;
  const source: Source = {
    kind: "server",
    async recordings() {
      const answer = answers[Math.min(asked++, answers.length - 1)];
      if (!answer) throw new Error("The server does not answer.");
      return answer;
    },
    async follow(_, to) {
      to.complete();
      to.connection("live");
      to.connection("ended");
    },
    artifact: () => Promise.reject(new Error("no files here")),
    download: null,
  };
  await start(() => Promise.resolve(source));
  await vi.advanceTimersByTimeAsync(10);
  expect(connection.value.state).toBe("ended");
  // It ends in the list, too, although the server does not say so any more.
  expect(recordings.value.map((one) => [one.id, one.live])).toEqual([[1, false]]);
  await vi.advanceTimersByTimeAsync(10_000);
  expect(recordings.value.map((one) => [one.id, one.live])).toEqual([[2, true], [1, false]]);
  expect(current.value?.recording.id).toBe(1);
  expect(asked).toBe(4);
  // What another server records in the same file is offered as well, without loading the page again.
  await vi.advanceTimersByTimeAsync(10_000);
  expect(recordings.value.map((one) => one.id)).toEqual([3, 2, 1]);
  expect(current.value?.recording.id).toBe(1);
});
