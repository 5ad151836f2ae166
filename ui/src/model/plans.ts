// A planned run: its plans, the stages and engines that came of them, and the requests that are done.
import type { Entry, PlanEntry, ProgressEntry, ReplicaEntry, StageEntry } from "./records";

export type PlanKind = "plan" | "stage" | "replica" | "progress";
type Planned = Extract<Entry, { kind: PlanKind }>;

/** A stage of a run, by the plan that it belongs to: both are numbers in order. */
export interface Entered {
  plan: number;
  entry: StageEntry;
}

export class Plans {
  readonly plans: PlanEntry[] = [];
  readonly stages: Entered[] = [];
  readonly replicas: ReplicaEntry[] = [];
  readonly progress: ProgressEntry[] = [];

  take(entry: Planned): void {
    switch (entry.kind) {
      case "plan":
        this.plans.push(entry);
        return;
      case "stage":
        this.stages.push({ plan: this.plans.length - 1, entry });
        return;
      case "replica":
        this.replicas.push(entry);
        return;
      case "progress":
        this.progress.push(entry);
    }
  }

  get empty(): boolean {
    return !this.plans.length;
  }

  /** When the run began; a plan alone begins when it was made. */
  get from(): number {
    return this.plans[0]?.at ?? 0;
  }

  /** How the run stands; null of a plan that nobody runs. */
  get state(): "running" | "finished" | "stopped" | null {
    const said = this.progress.at(-1)?.state;
    if (said === "finished" || said === "stopped") return said;
    return this.progress.length ? "running" : null;
  }
}
