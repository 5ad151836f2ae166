// The sample as a source, for `npm run dev` with ?sample=N (N sessions); ?sample=N&live=1 plays it.
import type { Entry, Recording } from "../src/model/records";
import { EmbeddedSource } from "../src/sources/embedded";
import type { Following, Source } from "../src/sources/source";
import { SAMPLE_RECORDING, sample } from "./sample";

export function sampleSource(sessions: number): Source {
  const recording = (id: string, seed: number, handling: string): Recording & { data: Entry[] } => {
    const data = sample({ sessions, seed, start: 0 });
    return { ...SAMPLE_RECORDING, id, title: `Sample ${id}`, entries: data.length, about: { ...SAMPLE_RECORDING.about, handling }, data };
  };
  const both = [recording("a", 1, "caesura"), recording("b", 2, "preserve")];
  if (new URLSearchParams(location.search).has("live")) return playing(both[0]);
  return new EmbeddedSource({ recordings: both }, "sample");
}

/** The recording as if it were made now: half of it is history, the rest comes second by second. */
function playing(recording: Recording & { data: Entry[] }): Source {
  const shown: Recording = { ...recording, live: true };
  return {
    kind: "sample",
    download: null,
    recordings: async () => [shown],
    artifact: async () => new Blob(),
    async follow(_: Recording, to: Following, signal: AbortSignal) {
      const half = recording.data.length >> 1;
      to.entries(recording.data.slice(0, half), half, half);
      to.complete();
      to.connection("live");
      for (let i = half; i < recording.data.length && !signal.aborted; i += 3) {
        to.entries(recording.data.slice(i, i + 3), 0, 0);
        await new Promise((resolve) => setTimeout(resolve, 250));
      }
      to.connection("ended");
    },
  };
}
