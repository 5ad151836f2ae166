// Who stood in the way of a waiting request: asked differently for each thing that it can lack.
import { link } from "../../app/router";
import { trace } from "../../app/state";
import { count, counted, duration, number, percent } from "../../format";
import { STATES } from "../../model/lane";
import type { WaitEntry } from "../../model/records";
import type { Trace } from "../../model/trace";
import { Called } from "../session/called";
import { tokensOf } from "../memory/budget";
import { STATE_NAMES } from "../timeline/shape";
import { type Blocker, type Companion, blockers, companions, hasSlot, mainState, prefills } from "./blockers";
import { type Lack, lackedOf } from "./lacks";

/** How many others are listed. */
const SHOWN = 12;

/** The answer to the question that `lack` asks of a wait. */
export function InTheWay({ wait, lack }: { wait: WaitEntry; lack: Lack }) {
  const shown = trace.value;
  if (!shown) return null;
  if (lack === "blocks") return <Holders shown={shown} wait={wait} />;
  if (lack === "line") return <Before shown={shown} wait={wait} />;
  return (
    <>
      <p class="small soft">{lack === "tokens" ? tokensSaid(shown, wait) : slotsSaid(wait, lack)}</p>
      <Companions shown={shown} request={wait.request} from={wait.since} until={wait.until}
        counts={lack === "tokens" ? prefills : hasSlot}
        none={lack === "tokens" ? "No other request computed a prompt or a result: the steps' tokens went to decoding." : "No other request ran."} />
    </>
  );
}

function slotsSaid(wait: WaitEntry, lack: Lack): string {
  if (lack === "slots") return "A request has a slot while it is computed or decodes; one that is paused has none.";
  return typeof wait.admitted_most === "number"
    ? `When the admission policy last refused it, ${counted(wait.admitted_most, "request")} ran, and the policy let no more run together.`
    : "The admission policy limits how many requests run together. These ran meanwhile.";
}

/** What the steps of a wait computed, against what they could. */
function tokensSaid({ steps }: Trace, wait: WaitEntry): string {
  const [first, last] = [steps.indexAt(wait.since - 1e-4) + 1, steps.indexAt(wait.until)];
  let tokens = 0;
  let budget = 0;
  for (let row = first; row <= last; row++) {
    tokens += tokensOf(steps, row);
    budget += steps.columns.budget_tokens[row];
  }
  const rows = last - first + 1;
  if (rows <= 0) return "These were computed meanwhile.";
  const against = budget > 0 ? ` of ${count(Math.round(budget / rows))} that it could take` : "";
  return `A step computed ${count(Math.round(tokens / rows))} tokens${against}, on average. What is decoded comes first; these were computed meanwhile.`;
}

/** The requests that were in some states within [from, until]. */
export function Companions({ shown, request, from, until, counts, none }: {
  shown: Trace; request: string; from: number; until: number; counts: (state: number) => boolean; none: string;
}) {
  const list = companions(shown, request, from, until, counts);
  if (!list.length) return <p class="small soft">{none}</p>;
  return (
    <table class="dc-holders">
      <thead><tr><th>request</th><th>mostly</th><th class="num">for</th><th class="num" title="Of that time">share</th></tr></thead>
      <tbody>
        {list.slice(0, SHOWN).map((one) => (
          <tr key={one.lane.id}>
            <Other one={one} />
            <td class="num">{duration(one.seconds)}</td>
            <td class="num">{percent(one.seconds / (until - from))}</td>
          </tr>
        ))}
      </tbody>
      <Rest more={list.length - SHOWN} columns={4} />
    </table>
  );
}

function Holders({ shown, wait }: { shown: Trace; wait: WaitEntry }) {
  const list = blockers(shown, wait.request, wait.since, wait.until);
  const all = list.reduce((sum, one) => sum + one.blockSeconds, 0);
  if (!list.length) return <p class="small soft">No other request held blocks on the device.</p>;
  return (
    <table class="dc-holders">
      <thead>
        <tr><th>request</th><th>mostly</th><th class="num">blocks</th><th class="num">for</th><th class="num" title="Of all block-seconds that others held meanwhile">share</th></tr>
      </thead>
      <tbody>{list.slice(0, SHOWN).map((one) => <Holder key={one.lane.id} blocker={one} all={all} />)}</tbody>
      <Rest more={list.length - SHOWN} columns={5} />
    </table>
  );
}

function Holder({ blocker, all }: { blocker: Blocker; all: number }) {
  return (
    <tr title={`${number(blocker.blockSeconds)} block-seconds`}>
      <Other one={blocker} />
      <td class="num">{number(blocker.meanBlocks)}</td>
      <td class="num">{duration(blocker.seconds)}</td>
      <td class="num">{percent(blocker.blockSeconds / all)}</td>
    </tr>
  );
}

function Other({ one }: { one: Companion }) {
  const name = STATES[mainState(one)];
  return (
    <>
      <td><a href={link("timeline", [], { sel: one.lane.id, pause: "" })}><Called request={one.lane.id} most={30} /></a></td>
      <td><i class="dc-swatch" style={{ background: `var(--state-${name})` }} />{STATE_NAMES[name]}</td>
    </>
  );
}

function Rest({ more, columns }: { more: number; columns: number }) {
  if (more <= 0) return null;
  return <tfoot><tr><td colSpan={columns} class="muted">and {count(more)} more with smaller shares</td></tr></tfoot>;
}

/** The request that was not to be overtaken, and what that one lacked. */
function Before({ shown, wait }: { shown: Trace; wait: WaitEntry }) {
  if (!wait.behind) return <p class="small soft">The recording does not name the request before it.</p>;
  const own = shown.waitsOf(wait.behind).find((one) => one.since < wait.until && one.until > wait.since);
  const [most] = lackedOf(own?.lacked);
  return (
    <p class="small soft">
      It last stood behind <a href={link("timeline", [], { sel: wait.behind, pause: "" })}><Called request={wait.behind} /></a>
      {most ? <>, which lacked {most.what} itself.</> : ", which was to run first."}
    </p>
  );
}
