// The views by their names in the address, in the order of the tabs.
import type { ComponentType } from "preact";
import type { Key } from "../app/keys";
import type { Trace } from "../model/trace";
import { CompareView } from "./compare/view";
import { DecisionView } from "./decision/view";
import { ErrorsView } from "./errors/view";
import { MEMORY_KEYS } from "./memory/keys";
import { MemoryView } from "./memory/view";
import { OVERVIEW_KEYS } from "./overview/keys";
import { OverviewView } from "./overview/view";
import { PLAN_KEYS } from "./plan/keys";
import { PlanView } from "./plan/view";
import { PredictionsView } from "./predictions/view";
import { SessionView } from "./session/view";
import { TIMELINE_KEYS } from "./timeline/keys";
import { TimelineView } from "./timeline/view";
import { ToolsView } from "./tools/view";
import { WhoView } from "./who/view";

export interface View {
  title: string;
  component: ComponentType;
  /** Its own keys and gestures, for the help. */
  keys?: readonly Key[];
  /** Whether a recording has anything for it; its tab is there only then. Without it: always. */
  has?: (shown: Trace) => boolean;
}

export const VIEWS: Record<string, View> = {
  overview: { title: "Overview", component: OverviewView, keys: OVERVIEW_KEYS },
  timeline: { title: "Timeline", component: TimelineView, keys: TIMELINE_KEYS },
  decision: { title: "Decisions", component: DecisionView },
  memory: { title: "Memory", component: MemoryView, keys: MEMORY_KEYS },
  session: { title: "Sessions", component: SessionView },
  tools: { title: "Tools", component: ToolsView },
  who: { title: "Who", component: WhoView },
  errors: { title: "Errors", component: ErrorsView },
  predictions: { title: "Predictions", component: PredictionsView },
  compare: { title: "Compare", component: CompareView },
  plan: { title: "Plan", component: PlanView, keys: PLAN_KEYS, has: (shown) => !shown.plans.empty },
};

/** The view that an address shows: of a plan without requests, the plan stands for the views of requests. */
export function viewOf(wanted: string, shown: Trace | null): string {
  const name = Object.hasOwn(VIEWS, wanted) ? wanted : "overview";
  const planned = shown !== null && !shown.plans.empty && !shown.lanes.length;
  return planned && (name === "overview" || name === "timeline") ? "plan" : name;
}
