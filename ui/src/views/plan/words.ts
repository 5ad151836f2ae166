// How blocks and stages of a plan are told.
import { counted, duration } from "../../format";
import type { Placement } from "../../model/records";
import { visible } from "../session/content";
import type { Block, What } from "./blocks";

export const DOES: Record<What, string> = {
  loading: "loading", serving: "serving", draining: "finishing its requests", evicting: "leaving the device",
};

/** Seconds of a run: 0.0 s, 12.3 s, 130 s. */
export const seconds = (value: number): string => `${value.toFixed(value < 100 ? 1 : 0).replace("-", "−")} s`;

/** A model's replicas and devices: "2 replicas of 1 device". */
export const parallel = (replicas: number, devices: number): string =>
  `${counted(replicas, "replica")} of ${counted(devices, "device")}`;

/** A block in a sentence. */
export function told(block: Block): string {
  const name = block.replica ? `${block.model} (${block.replica})` : block.model;
  const until = block.open ? "until now" : `to ${seconds(block.until)}`;
  const lost = block.lost === null ? "" : `, lost: ${block.lost}`;
  return visible(
    `${name}, ${parallel(block.replicas, block.tensorParallel)}, ${DOES[block.what]} on device ${block.device}` +
    ` from ${seconds(block.since)} ${until}, ${duration(block.until - block.since)}${lost}`,
  );
}

/** What a stage places: "small ×2, large on 2 devices". */
export const placed = (placements: readonly Placement[]): string =>
  placements.map((one) => visible(one.model ?? "") + times(one)).join(", ");

function times({ replicas = 1, tensor_parallel: devices = 1 }: Placement): string {
  return (replicas > 1 ? ` ×${replicas}` : "") + (devices > 1 ? ` on ${devices} devices` : "");
}

/** How much longer something took than planned: "+4.2 s", "−1.0 s". */
export const difference = (real: number, planned: number): string => {
  const more = real - planned;
  return `${more < 0 ? "−" : "+"}${seconds(Math.abs(more))}`;
};
