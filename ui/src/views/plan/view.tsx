// Plan: which model has which device when, the plan above the run, and how far the run is.
import { useMemo } from "preact/hooks";
import { beat, current, nowOf, trace, version } from "../../app/state";
import "../../charts/charts.css";
import { Lines, LinesLegend, type Series } from "../../charts/lines";
import { linearScale } from "../../charts/scale";
import { largest } from "../../charts/stats";
import { count, counted, ratio } from "../../format";
import type { Plans } from "../../model/plans";
import { visible } from "../session/content";
import { plannedBlocks, realBlocks } from "./blocks";
import { Gantt, type Panel, endOf } from "./chart";
import "./plan.css";
import { changesOf, doneLines, doneOf, expectedEnd, stageRows } from "./stages";
import { BlockTable, Changes, Difference, StageTable } from "./tables";
import { seconds } from "./words";

export function PlanView() {
  const shown = trace.value;
  const made = version.value;
  const plans = shown?.plans;
  beat.value;
  if (!plans || plans.empty) return <NoPlan />;
  return <Planned plans={plans} made={made} now={nowIn(plans)} />;
}

/** The second of the run that it has reached; the last one of a run that is over. */
function nowIn(plans: Plans): number {
  const loaded = current.value;
  const last = Math.max(plans.from, plans.progress.at(-1)?.at ?? 0, plans.replicas.at(-1)?.at ?? 0);
  const now = plans.state === "running" && loaded?.recording.live ? Math.max(last, nowOf(loaded)) : last;
  return now - plans.from;
}

function Planned({ plans, made, now }: { plans: Plans; made: number; now: number }) {
  const first = plans.plans[0];
  const changes = changesOf(plans);
  const stages = stageRows(plans, now);
  const runs = plans.state !== null;
  const panels = useMemo((): Panel[] => {
    const plan: Panel = {
      name: "The plan", blocks: plannedBlocks(plans),
      stages: stages.filter((row) => row.state !== "replaced").map((row) => ({ at: row.planned.since, name: String(row.stage + 1) })),
    };
    const run: Panel = {
      name: "The run", blocks: realBlocks(plans, now),
      stages: stages.flatMap((row) => (row.real ? [{ at: row.real.since, name: String(row.stage + 1) }] : [])),
    };
    return runs ? [plan, run] : [plan];
  }, [plans, made, now]);
  const models = [...new Set(panels.flatMap((panel) => panel.blocks.map((block) => block.model)))].sort();
  const devices = largest(panels.flatMap((panel) => panel.blocks.map((block) => block.device + 1)), first.devices ?? 1);
  return (
    <div class="view plan" data-testid="plan">
      <Head plans={plans} now={now} />
      <div class="panel plan-scroll">
        <Gantt panels={panels} models={models} devices={devices} changes={changes.map((change) => change.at)}
          end={endOf(panels, first.makespan ?? 0)} />
      </div>
      {plans.progress.length > 0 && <Requests plans={plans} now={now} />}
      <StageTable rows={stages} several={plans.plans.length > 1} />
      {changes.length > 0 && <Changes changes={changes} />}
      <BlockTable panels={panels} />
    </div>
  );
}

function Head({ plans, now }: { plans: Plans; now: number }) {
  const first = plans.plans[0];
  const last = plans.plans[plans.plans.length - 1];
  const { done, failed, requests } = doneOf(plans);
  const planned = first.makespan ?? 0;
  const other = first.next_best;
  return (
    <section class="panel plan-head">
      <h2>{visible(first.application ?? "") || "An application"}</h2>
      <dl class="plan-figures">
        <div>
          <dt>Planned</dt>
          <dd data-testid="plan-makespan">{seconds(planned)}{range(first.low, first.high)}</dd>
        </div>
        {plans.state !== null && (
          <div>
            <dt>{plans.state === "running" ? "So far" : plans.state === "finished" ? "The run took" : "Stopped after"}</dt>
            <dd data-testid="plan-real">
              {seconds(now)}
              {plans.state === "finished" && <> <Difference real={now} planned={planned} /> ({ratio(now, planned)} of the plan)</>}
            </dd>
          </div>
        )}
        {plans.state === "running" && last !== first && (
          <div><dt>Now expected</dt><dd>{seconds(expectedEnd(plans, last))}</dd></div>
        )}
        <div>
          <dt>Requests</dt>
          <dd data-testid="plan-requests">{plans.state === null ? count(requests) : `${count(done)} of ${count(requests)} done`}
            {failed > 0 && <span class="bad">, {counted(failed, "failure")}</span>}</dd>
        </div>
        <div><dt>Devices</dt><dd>{count(first.devices)}</dd></div>
        <div><dt>Found by</dt><dd>{visible(first.strategy ?? "")}</dd></div>
      </dl>
      {other
        ? <p class="small" data-testid="plan-next">Next best: {visible(other.strategy ?? "")}, {seconds(other.makespan ?? 0)}{range(other.low, other.high)}. {sentence(other.reason)}</p>
        : <p class="small soft">No next best plan is recorded.</p>}
      {plans.state === null && <p class="small soft">Nobody has run this plan yet: <code>caesura run</code> does, and is recorded beside its plan.</p>}
    </section>
  );
}

function Requests({ plans, now }: { plans: Plans; now: number }) {
  const lines = doneLines(plans);
  const { done, requests } = doneOf(plans);
  const series = lines.map((line): Series => ({
    name: visible(line.name),
    points: line.points.map((point) => ({
      x: point.at, y: point.done, about: `${counted(point.done, "request")} of ${count(point.requests)} done at ${seconds(point.at)}`,
    })),
  }));
  const axis = linearScale(Math.max(now, 1), 0, 1, 5);
  return (
    <section class="panel plan-requests">
      <h3>Requests done</h3>
      <Lines series={series} from={0} to={Math.max(now, 1)} ticks={axis.ticks.filter((tick) => tick <= now)} top={requests} height={200}
        acrossName="seconds of the run" upName="requests done" formatX={seconds} formatY={count}
        label={`Requests done over time: ${count(done)} of ${count(requests)} after ${seconds(now)}. ${lines.slice(1).map((line) => `${visible(line.name)}: ${count(line.points.at(-1)?.done)} of ${count(line.points.at(-1)?.requests)}`).join(", ")}`} />
      <LinesLegend names={series.map((one) => one.name)} />
    </section>
  );
}

/** The range over the draws of output lengths, where there is one. */
const range = (low?: number, high?: number): string =>
  low === undefined || high === undefined || low === high ? "" : ` (${seconds(low)} to ${seconds(high)})`;

const sentence = (text = ""): string => (text ? visible(`${text[0].toUpperCase()}${text.slice(1)}.`) : "");

function NoPlan() {
  return (
    <div class="center">
      <div class="card panel">
        <h2>No plan</h2>
        <p>This recording holds no plan of several models. <code>caesura run</code> and <code>caesura plan --trace</code> record theirs.</p>
      </div>
    </div>
  );
}
