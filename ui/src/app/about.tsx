// What is known of the shown recording: where it comes from and how its engine was set.
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { count, day, duration, number } from "../format";
import type { Recording } from "../model/records";
import { current, version } from "./state";

const open = signal(false);

const UNITS: Record<string, string> = { pause_deadline: " s", retention: " s", block_size: " tokens", block_bytes: " bytes" };

const SOURCES: Record<string, string> = {
  serve: "a server", simulate: "a simulation", "what-if": "a replay of a recording", records: "a file of records", sdk: "the SDK", plan: "a planned run", several: "several",
};

export function About() {
  const dialog = useRef<HTMLDialogElement>(null);
  const shown = open.value;
  useEffect(() => {
    if (shown) dialog.current?.showModal();
    else dialog.current?.close();
  }, [shown]);
  const loaded = current.value;
  if (!loaded) return null;
  version.value;
  return (
    <>
      <button class="plain" onClick={() => (open.value = true)} aria-label="About this recording" title="About this recording">i</button>
      <dialog ref={dialog} aria-labelledby="about-title" onClose={() => (open.value = false)}>
        <h2 id="about-title">{loaded.recording.title}</h2>
        <table>
          <tbody>
            {factsOf(loaded.recording).map(([name, value]) => <tr key={name}><th>{name}</th><td>{value}</td></tr>)}
            <tr><th>requests</th><td>{count(loaded.trace.lanes.length)}</td></tr>
            <tr><th>pauses</th><td>{count(loaded.trace.pauses.length)}</td></tr>
            <tr><th>steps</th><td>{count(loaded.trace.parts.reduce((sum, part) => sum + part.steps.length, 0))}</td></tr>
          </tbody>
        </table>
        <form method="dialog" class="row" style={{ marginTop: "12px", justifyContent: "end" }}>
          <button>Close</button>
        </form>
      </dialog>
    </>
  );
}

/** The recording's facts as names and values. */
function factsOf(recording: Recording): [name: string, value: string][] {
  const facts: [string, string][] = [
    ["made by", SOURCES[recording.source] ?? recording.source],
    ["began", day(recording.started)],
  ];
  if (recording.ended !== null) facts.push(["lasted", duration(recording.ended - recording.started)]);
  if (recording.note) facts.push(["note", recording.note]);
  facts.push(["messages and results", recording.content ? "recorded" : "not recorded"]);
  for (const [name, value] of Object.entries(recording.about)) {
    if (value !== null && value !== undefined) facts.push([name.replaceAll("_", " "), typeof value === "number" ? number(value) + (UNITS[name] ?? "") : String(value)]);
  }
  return facts;
}
