// "What if": the marked stretch replayed as it was recorded and under other policies, and the replays compared.
import { useEffect, useMemo, useState } from "preact/hooks";
import { current, recordings, source, timeWindow, version } from "../app/state";
import { counted, day, moment, percent } from "../format";
import type { Trace } from "../model/trace";
import { ServerSource } from "../sources/server";
import { Replays } from "./replays";
import { type Choice, EACH, type Job, KNOWN, RECORDED, type State, ask, choicesOf, command } from "./server";
import "./whatif.css";

/** Milliseconds between two looks at a replay that is under way. */
const LOOK = 1000;

export function WhatIf() {
  const [choice, setChoice] = useState<Choice>({ handling: "preserve", ranking: RECORDED, admission: RECORDED });
  const loaded = current.value;
  const from = source.value;
  const server = from instanceof ServerSource ? from : null;
  if (!loaded || loaded.recording.source === "simulate" || loaded.recording.source === "what-if") return null;
  return (
    <details class="panel wi" data-testid="what-if">
      <summary>What if it had been handled otherwise?</summary>
      <Stretch />
      <p class="small soft">
        The scheduler that serves runs again on a simulated machine, with the same arrivals, the same lengths of
        prompts and answers, and the same durations of tools. The costs of steps and copies are those of the
        calibration. A replay cannot know what the model would have said, which prefixes sessions shared, or how
        clients would have come back sooner or later. So the recorded policy is replayed too, and the others are
        compared with its replay.
      </p>
      {server
        ? <OnServer base={server.base} recording={String(loaded.recording.id)} choice={choice} onChoice={setChoice} />
        : <AsCommand recording={String(loaded.recording.id)} choice={choice} onChoice={setChoice} />}
    </details>
  );
}

function Stretch() {
  const made = version.value;
  const loaded = current.value!;
  const window = timeWindow.value;
  const many = useMemo(() => arrivedIn(loaded.trace, window), [loaded, made, window]);
  return (
    <p>
      {window
        ? <>Stretch: <b>{day(window.t0)} to {moment(window.t1, 0)}</b>, in which {counted(many, "session")} arrived.</>
        : <>Stretch: <b>all of the recording</b>, {counted(many, "session")}. Shift-drag in the timeline marks a shorter one.</>}
    </p>
  );
}

/** How many sessions began within a window. */
export function arrivedIn(trace: Trace, window: { t0: number; t1: number } | null): number {
  let many = 0;
  for (const session of trace.sessions.values()) {
    const at = session.end?.arrival ?? session.lanes[0]?.start;
    if (at !== undefined && at !== null && (!window || (at >= window.t0 && at <= window.t1))) many += 1;
  }
  return many;
}

interface Chosen {
  recording: string;
  choice: Choice;
  onChoice: (choice: Choice) => void;
}

function Choices({ policies, choice, onChoice }: { policies: State["policies"] } & Omit<Chosen, "recording">) {
  return (
    <span class="wi-choices">
      {Object.entries(policies).map(([what, names]) => (
        <label key={what}>
          {what}{" "}
          <select value={choice[what]} onChange={(event) => onChoice({ ...choice, [what]: event.currentTarget.value })}>
            <option value={RECORDED}>as recorded</option>
            {names.map((name) => <option key={name} value={name}>{name}</option>)}
            <option value={EACH}>each of them</option>
          </select>
        </label>
      ))}
    </span>
  );
}

function AsCommand({ recording, choice, onChoice }: Chosen) {
  return (
    <>
      <Choices policies={KNOWN} choice={choice} onChoice={onChoice} />
      <p class="small soft">This page has no server behind it. On the machine with the recordings, run:</p>
      <pre class="wi-command">{command(recording, timeWindow.value, choice, current.value!.recording.about)}</pre>
      <p class="small soft">
        <code>calibration:path=FILE</code> is what <code>caesura calibrate</code> has measured; kv and host are the memory of the engine.
      </p>
    </>
  );
}

function OnServer({ base, recording, choice, onChoice }: { base: string } & Chosen) {
  const [state, setState] = useState<State | null | undefined>(undefined);
  const [problem, setProblem] = useState("");
  const running = state?.job?.state === "running";
  const take = async (method: "GET" | "POST" | "DELETE", body?: unknown): Promise<void> => {
    try {
      const found = await ask(base, method, body);
      setState(found);
      setProblem("");
      const made = found?.job?.replays.flatMap((one) => one.result ?? []) ?? [];
      if (made.some((id) => !recordings.peek().some((one) => String(one.id) === String(id)))) {
        recordings.value = await source.peek()!.recordings();
      }
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
    }
  };
  useEffect(() => void take("GET"), [base]);
  useEffect(() => {
    if (!running) return;
    const timer = setInterval(() => void take("GET"), LOOK);
    return () => clearInterval(timer);
  }, [running]);
  if (state === undefined) return problem ? <p class="note bad" role="alert">{problem}</p> : null;
  if (state === null) return <p class="note">This server offers no replays: it was started with <code>--no-what-if</code>, or records nothing.</p>;
  const begin = (): void => {
    const { trace } = current.peek()!;
    const { t0, t1 } = timeWindow.peek() ?? { t0: trace.from, t1: trace.to };
    void take("POST", { recording: Number(recording), since: t0, until: t1, policies: choicesOf(choice, state.policies) });
  };
  return (
    <>
      <div class="wi-row">
        <Choices policies={state.policies} choice={choice} onChoice={onChoice} />
        <button class="primary" disabled={running} onClick={begin}>Replay</button>
        {running && <button onClick={() => void take("DELETE")}>Cancel</button>}
      </div>
      {problem && <p class="note bad" role="alert">{problem}</p>}
      {state.job && <Progress job={state.job} />}
    </>
  );
}

function Progress({ job }: { job: Job }) {
  if (job.state === "running") {
    return (
      <p role="status">
        <progress value={job.done} aria-label="Replay" />{" "}
        {job.sessions ? `${counted(job.replays.length, "replay")} of ${counted(job.sessions, "session")}, ${percent(job.done)}` : "Reading the stretch…"}
      </p>
    );
  }
  if (job.state === "cancelled") return <p role="status">The replay was cancelled.</p>;
  if (job.state === "failed") return <p class="note bad" role="alert">The replay failed: {job.error}.</p>;
  return <Replays job={job} />;
}
