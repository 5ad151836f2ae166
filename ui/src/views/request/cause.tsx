// Why a request took as long as it did, in one sentence.
import { useMemo } from "preact/hooks";
import { link } from "../../app/router";
import { requestOf } from "../../causes/figures";
import { ledgerOf } from "../../causes/ledger";
import { bestPace, toldOf } from "../../causes/told";
import { duration, percent } from "../../format";
import type { Lane } from "../../model/lane";
import type { Trace } from "../../model/trace";
import { around } from "../timeline/zoom";
import type { Account, Key } from "./account";

/** Rows of the account that are neither the engine's nor a pause's. */
const OUTSIDE: ReadonlySet<Key> = new Set(["received", "server", "rendering", "handover", "answering", "closing", "sent"]);
/** Time outside the engine is told where it is at least this share. */
const WORTH_TELLING = 0.05;
const LATE = 2;

export function Cause({ trace, lane, account, now }: { trace: Trace; lane: Lane; account: Account; now: number }) {
  const all = account.until - account.from;
  // The last records of a request are written a moment after its end.
  const settled = !account.open && trace.to > account.until + LATE;
  const { sentence, first } = useMemo(() => {
    const ledger = ledgerOf(trace, now);
    return toldOf(requestOf(trace, lane, now), trace, ledger, now, bestPace(ledger.ended), all);
  }, [lane, settled ? 0 : trace.version, all]);
  const outside = account.rows.reduce((sum, row) => sum + (OUTSIDE.has(row.key) ? row.seconds : 0), 0);
  const also = outside > WORTH_TELLING * all ? `; ${duration(outside)} (${percent(outside / all)}) outside the engine` : "";
  if (!first) return null;
  const { t0, t1 } = around(first.longest.from, first.longest.until, 0.5);
  return (
    <p class="rq-cause" data-testid="cause">
      <a href={link("timeline", [], { sel: lane.id, t0: String(t0), t1: String(t1) })}>{sentence}{also}.</a>
    </p>
  );
}
