// The Gantt chart: devices over time, the plan above the run. Blocks are walked through by the arrow keys.
import { useRef, useState } from "preact/hooks";
import { linearScale } from "../../charts/scale";
import { largest } from "../../charts/stats";
import { visible } from "../session/content";
import { type Block, WHATS } from "./blocks";
import { DOES, told } from "./words";

/** Colours of models; more models begin anew, and each has its number besides. */
const COLOURS = 6;

export interface Panel {
  name: string;
  blocks: readonly Block[];
  /** When stages begin, in seconds of the run, with their numbers. */
  stages: readonly { at: number; name: string }[];
}

interface Props {
  panels: readonly Panel[];
  models: readonly string[];
  devices: number;
  /** The end of the axis, in seconds of the run. */
  end: number;
  /** When the run changed to another plan. */
  changes: readonly number[];
}

export function Gantt({ panels, models, devices, end, changes }: Props) {
  const frame = useRef<HTMLDivElement>(null);
  const [at, setAt] = useState<[panel: number, block: number]>([0, 0]);
  const panel = Math.min(at[0], panels.length - 1);
  const block = Math.min(at[1], panels[panel].blocks.length - 1);
  const scale = linearScale(end || 1, 0, 100, 5);
  const share = (time: number): string => `${scale.place(time)}%`;
  const go = (next: [number, number]): void => {
    setAt(next);
    frame.current?.querySelector<HTMLElement>(`[data-place="${next[0]}-${next[1]}"]`)?.focus();
  };
  const chosen = panels[panel].blocks[block];
  return (
    <div class="plan-gantt" ref={frame} onKeyDown={(event) => {
      const next = step(panels, [panel, block], event.key);
      if (!next) return;
      event.preventDefault();
      event.stopPropagation();
      go(next);
    }}>
      {panels.map((one, number) => (
        <section key={one.name} class="plan-panel" aria-label={`${one.name}: devices over time`} data-testid={`plan-panel-${number}`}>
          <h3>{one.name}</h3>
          <div class="plan-lanes">
            <div class="plan-marks" aria-hidden="true">
              {scale.ticks.map((tick) => <i key={tick} style={{ left: share(tick) }} />)}
              {one.stages.map((stage, place) => <b key={place} style={{ left: share(stage.at) }}>{stage.name}</b>)}
              {changes.map((change) => <em key={change} style={{ left: share(change) }} />)}
            </div>
            {Array.from({ length: devices }, (_, device) => (
              <div key={device} class="plan-lane">
                <span class="plan-device">device {device}</span>
                <div class="plan-track">
                  {one.blocks.map((each, place) => each.device === device && (
                    <button key={place} data-place={`${number}-${place}`} data-testid="plan-block"
                      class={`plan-block ${each.what} c${models.indexOf(each.model) % COLOURS}${each.lost === null ? "" : " lost"}${each.open ? " open" : ""}`}
                      style={{
                        left: share(each.since), width: `${scale.place(each.until) - scale.place(each.since)}%`,
                        top: `${(100 * each.row) / each.rows}%`, height: `${100 / each.rows}%`,
                      }}
                      tabIndex={number === panel && place === block ? 0 : -1}
                      aria-label={`${one.name}: ${told(each)}`} title={told(each)}
                      onFocus={() => setAt([number, place])} onClick={() => setAt([number, place])}>
                      {each.lost !== null && "✕ "}<b>{models.indexOf(each.model) + 1}</b> {visible(each.model)}
                      {each.what !== "loading" && ` ${each.replicas}×${each.tensorParallel}`}
                    </button>
                  ))}
                </div>
              </div>
            ))}
            <div class="plan-axis" aria-hidden="true">
              {scale.ticks.map((tick) => <span key={tick} style={{ left: share(tick) }}>{tick} s</span>)}
            </div>
          </div>
        </section>
      ))}
      <p class="plan-chosen small" data-testid="plan-chosen">{chosen ? `${panels[panel].name}: ${told(chosen)}.` : "No engine was started yet."}</p>
      <Legend models={models} changed={changes.length > 0} />
    </div>
  );
}

function Legend({ models, changed }: { models: readonly string[]; changed: boolean }) {
  return (
    <div class="plan-legend small">
      {WHATS.map((what) => <span key={what}><i class={`plan-block ${what}`} aria-hidden="true" />{DOES[what]}</span>)}
      {models.map((model, place) => (
        <span key={model}><i class={`plan-block serving c${place % COLOURS}`} aria-hidden="true"><b>{place + 1}</b></i>{visible(model)}</span>
      ))}
      <span>2×1: two replicas of one device</span>
      {changed && <span><i class="plan-change" aria-hidden="true" />planned anew</span>}
    </div>
  );
}

/** Where an arrow key leads from a block: along its device, or to another one at the same time. */
function step(panels: readonly Panel[], [panel, place]: [number, number], key: string): [number, number] | null {
  const { blocks } = panels[panel];
  const from = blocks[place];
  if (!from) return null;
  const own = blocks.flatMap((block, other) => (block.device === from.device ? [other] : []));
  const here = own.indexOf(place);
  switch (key) {
    case "ArrowRight": return [panel, own[Math.min(here + 1, own.length - 1)]];
    case "ArrowLeft": return [panel, own[Math.max(here - 1, 0)]];
    case "Home": return [panel, own[0]];
    case "End": return [panel, own[own.length - 1]];
    case "ArrowDown": return otherLane(panels, panel, from, 1);
    case "ArrowUp": return otherLane(panels, panel, from, -1);
    default: return null;
  }
}

/** The block of the next lane with any, in the next panel too, that is the closest in time. */
function otherLane(panels: readonly Panel[], panel: number, from: Block, way: 1 | -1): [number, number] | null {
  const lanes = panels.flatMap((one, number) =>
    [...new Set(one.blocks.map((block) => block.device))].sort((a, b) => a - b).map((device) => [number, device] as const));
  const here = lanes.findIndex(([number, device]) => number === panel && device === from.device);
  const lane = lanes[here + way];
  if (!lane) return null;
  const [number, device] = lane;
  const away = (block: Block): number => Math.max(0, block.since - from.since, from.since - block.until);
  const own = panels[number].blocks.flatMap((block, place) => (block.device === device ? [{ place, far: away(block) }] : []));
  own.sort((a, b) => a.far - b.far);
  return [number, own[0].place];
}

/** The end of an axis that shows all blocks and all ends that are given. */
export const endOf = (panels: readonly Panel[], ...others: number[]): number =>
  largest([...panels.flatMap((panel) => panel.blocks.map((block) => block.until)), ...others], 1);

