// Which model holds which device when, planned and real: blocks in seconds of the run.
import type { PlannedBlock, ReplicaEntry } from "../../model/records";
import type { Plans } from "../../model/plans";

/** What an engine does in a block. */
export type What = "loading" | "serving" | "draining" | "evicting";
export const WHATS: readonly What[] = ["loading", "serving", "draining", "evicting"];

export interface Block {
  device: number;
  model: string;
  what: What;
  /** The model's replicas at its beginning, and the devices of each. */
  replicas: number;
  tensorParallel: number;
  since: number;
  until: number;
  /** The engine, of a run. */
  replica: string;
  /** Why the engine was lost or could not be loaded; null if it was not. */
  lost: string | null;
  /** Whether it goes on. */
  open: boolean;
  /** The row within its device, and how many rows that has: models that share a device differ. */
  row: number;
  rows: number;
}

/** The blocks of all plans: each plan holds until a run changed to the next one. */
export function plannedBlocks(plans: Plans): Block[] {
  const found = plans.plans.flatMap((plan, place) => {
    const offset = plan.at - plans.from;
    const end = place + 1 < plans.plans.length ? plans.plans[place + 1].at - plans.from : Infinity;
    return (plan.blocks ?? []).map((block) => planned(block, offset, end)).filter((block) => block.until > block.since);
  });
  return inRows(found);
}

function planned(block: PlannedBlock, offset: number, end: number): Block {
  return {
    device: block.device ?? 0, model: block.model ?? "", what: block.state === "loading" ? "loading" : "serving",
    replicas: block.replicas ?? 1, tensorParallel: block.tensor_parallel ?? 1,
    since: offset + (block.since ?? 0), until: Math.min(end, offset + (block.until ?? 0)),
    replica: "", lost: null, open: false, row: 0, rows: 1,
  };
}

/** The blocks of the run, of which those that go on reach to `now`, in seconds of the run. */
export function realBlocks(plans: Plans, now: number): Block[] {
  const found: Block[] = [];
  const open = new Map<string, Block[]>();
  const close = (replica: string, at: number, lost: string | null): void => {
    for (const block of open.get(replica) ?? []) Object.assign(block, { until: at, open: false, lost });
    open.delete(replica);
  };
  for (const entry of plans.replicas) {
    const at = entry.at - plans.from;
    const failed = entry.state === "lost" || entry.state === "failed";
    close(entry.replica, at, failed ? entry.reason || entry.state || "" : null);
    if (!isWhat(entry.state)) continue;
    const made = begun(plans, entry, entry.state, at);
    found.push(...made);
    open.set(entry.replica, made);
  }
  const over = plans.state !== "running";
  for (const blocks of open.values()) {
    for (const block of blocks) Object.assign(block, { until: Math.max(block.since, now), open: !over });
  }
  return inRows(found.filter((block) => block.until > block.since || block.lost !== null));
}

function begun(plans: Plans, entry: ReplicaEntry, what: What, since: number): Block[] {
  const devices = entry.devices ?? [];
  const { model = "", replica } = entry;
  const replicas = replicasAt(plans, model, entry.at);
  return devices.map((device) => ({
    device, model, what, replicas, tensorParallel: devices.length, since, until: since, replica, lost: null, open: true,
    row: 0, rows: 1,
  }));
}

/** How many replicas the model has by the last stage before `at` that places it. */
function replicasAt(plans: Plans, model: string, at: number): number {
  for (let place = plans.stages.length - 1; place >= 0; place--) {
    const { entry } = plans.stages[place];
    const own = entry.at <= at + 1e-6 ? entry.placements?.find((one) => one.model === model) : undefined;
    if (own) return own.replicas ?? 1;
  }
  return 1;
}

const isWhat = (state: string | undefined): state is What => (WHATS as readonly string[]).includes(state ?? "");

/** Give blocks that overlap on a device rows of their own, and sort them by device and time. */
function inRows(blocks: Block[]): Block[] {
  blocks.sort((a, b) => a.device - b.device || a.since - b.since);
  const most = new Map<number, number>();
  blocks.forEach((block, place) => {
    const taken = new Set<number>();
    for (let before = place - 1; before >= 0 && blocks[before].device === block.device; before--) {
      const other = blocks[before];
      if (other.until > block.since + 1e-9) taken.add(other.row);
    }
    while (taken.has(block.row)) block.row += 1;
    most.set(block.device, Math.max(most.get(block.device) ?? 1, block.row + 1));
  });
  for (const block of blocks) block.rows = most.get(block.device) ?? 1;
  return blocks;
}
