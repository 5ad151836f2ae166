// The overview: how quick requests were, what slowed them, and which were slow or strange.
import { useMemo } from "preact/hooks";
import { type Loaded, current, nowOf, timeMap, timeWindow, version, wholeOf } from "../../app/state";
import "../../charts/charts.css";
import { ledgerOf } from "../../causes/ledger";
import type { TimeMap } from "../../model/timemap";
import { Answers } from "./answers";
import { Charts } from "./charts";
import { Figures } from "./figures";
import { Deaths, Head } from "./head";
import "./overview.css";
import { useMeasured } from "./paced";
import { Slow } from "./slow";
import { SlowedList } from "./slowed";

/**
 * Five batches a second come in live. Nobody reads figures that quickly, and percentiles are sorted
 * anew for each window. So figures are made once in so many milliseconds, and less often where that
 * takes long: it takes a tenth of the time at most. What each request took is kept.
 */
const PACE = 800;

export function OverviewView() {
  const loaded = current.value;
  const made = useMeasured(version.value, PACE);
  const window = timeWindow.value;
  // Time goes on while nothing comes: the window's end is that of the last version.
  const map = useMemo(() => timeMap.peek(), [loaded, made]);
  return useMemo(
    () => loaded && <Body loaded={loaded} window={window} map={map} />,
    [loaded, made, window?.t0, window?.t1, map],
  );
}

interface Props {
  loaded: Loaded;
  window: { t0: number; t1: number } | null;
  map: TimeMap;
}

function Body({ loaded, window, map }: Props) {
  const { trace, recording } = loaded;
  const now = nowOf(loaded);
  const ledger = ledgerOf(trace, now);
  const { t0, t1 } = window ?? wholeOf(trace);
  const ended = ledger.endedIn(t0, t1);
  const shown = { trace, ledger, ended, t0, t1, now };
  return (
    <div class="view ov" data-testid="overview">
      <Head {...shown} marked={window !== null} live={recording.live} />
      <Deaths {...shown} />
      <div class="ov-top">
        <Figures {...shown} />
        <SlowedList {...shown} />
      </div>
      <Answers {...shown} served={recording.source === "serve"} />
      <Charts {...shown} map={map} />
      <Slow {...shown} />
    </div>
  );
}
