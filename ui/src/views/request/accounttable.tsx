// The account of a request's time, as a table whose rows sum up to all of it.
import { link } from "../../app/router";
import { duration, percent } from "../../format";
import type { Lane } from "../../model/lane";
import type { Trace } from "../../model/trace";
import { around } from "../timeline/zoom";
import type { Account, AccountRow, Key } from "./account";

interface Words {
  name: string;
  /** The CSS custom property of its colour. */
  colour: string;
  meaning: string;
}

const of = (name: string, colour: string, meaning: string): Words => ({ name, colour, meaning });

const WORDS: Record<Key, Words> = {
  received: of("the server: reading the request", "--ink-3", "From the client's first byte over HTTP until the run began: reading and checking the request, and fetching its pictures."),
  server: of("the server, before the model's turn", "--ink-3", "From the beginning of the run until its first turn."),
  rendering: of("rendering and tokenising", "--ink-3", "The messages were made into tokens by the model's chat template."),
  handover: of("on the way to the engine", "--ink-3", "The tokens were handed to the engine; its scheduler had them when the step that ran had ended."),
  "waiting-blocks": of("waiting for KV blocks", "--state-waiting", "Too few blocks were free."),
  "waiting-slots": of("waiting for a slot", "--state-waiting", "As many requests ran as may run together (max_num_seqs)."),
  "waiting-tokens": of("waiting for tokens of a step", "--state-waiting", "The steps' token budget was used up by others."),
  "waiting-admission": of("waiting for admission", "--state-waiting", "The admission policy let no more requests run together."),
  "waiting-line": of("waiting for its turn", "--state-waiting", "It stood behind a request that must not be overtaken."),
  "waiting-step": of("waiting for the next step", "--state-waiting", "It waited for fewer than two steps, which is what every request does."),
  "waiting-open": of("waiting, and still does", "--state-waiting", "What it lacks is recorded when it has stopped waiting."),
  "waiting-other": of("waiting, and no lack was found", "--state-waiting", "vLLM passed it over for a reason of its own, or it was not looked at."),
  loading: of("loading KV from the host", "--state-loading", "Its blocks were allocated, and their content came over the link."),
  prefill: of("prefill", "--state-prefill", "New tokens were computed: the prompt, or a tool's result."),
  recompute: of("recompute", "--state-recompute", "Tokens were computed that had been computed before."),
  decode: of("decode", "--state-decode", "Tokens were generated."),
  lost: of("the engine had died", "--state-lost", "From the death of its engine until it was in the queue of the next one."),
  "paused-tool": of("paused: the tool itself", "--state-paused", "A tool ran, by its own span."),
  "paused-person": of("paused: a person", "--state-person", "A call waited for a person's answer or consent."),
  "paused-runtime": of("paused: the runtime", "--ink-3", "Calls were read and started, and their results were rendered and tokenised."),
  "paused-step": of("paused: the step that ran", "--ink-3", "The result was with the engine, which took it in when the step that ran had ended."),
  "paused-unseen": of("paused: a tool that is not seen", "--state-paused", "No span tells of it, as of tools that a client runs."),
  answering: of("the answer's way back", "--ink-3", "The last tokens became text, were parsed and sent on."),
  closing: of("the server, after the model's turn", "--ink-3", "The answer was finished."),
  sent: of("the server: writing the answer", "--ink-3", "From the end of the run until the answer had been written over HTTP."),
};

/** What the words are where the boundary between two rows is not recorded. */
const TOGETHER: Partial<Record<Key, string>> = {
  rendering: "rendering, and on the way to the engine",
  "paused-runtime": "paused: the runtime and the step that ran",
};

/** `perToken` are the seconds for each decoded token, null where that is not known. */
export function AccountTable({ account, lane, perToken }: { account: Account; lane: Lane; perToken: number | null }) {
  const all = account.until - account.from;
  return (
    <table class="rq-account" data-testid="account">
      <caption class="hidden-visually">Where the request's time went</caption>
      <thead><tr><th>what took its time</th><th class="num">seconds</th><th class="num">share</th></tr></thead>
      <tbody>
        {account.rows.map((row) => <Line key={row.key} row={row} lane={lane} all={all} account={account} perToken={perToken} />)}
      </tbody>
      <tfoot><tr><th scope="row">all of it{account.open ? ", so far" : ""}</th><td class="num" data-testid="account-all">{duration(all)}</td><td /></tr></tfoot>
    </table>
  );
}

function Line({ row, lane, all, account, perToken }: {
  row: AccountRow; lane: Lane; all: number; account: Account; perToken: number | null;
}) {
  const words = WORDS[row.key];
  const { t0, t1 } = around(row.longest.from, row.longest.until, 0.5);
  const name = account.exact ? words.name : (TOGETHER[row.key] ?? words.name);
  return (
    <tr data-testid={`account-${row.key}`}>
      <td title={words.meaning}>
        <i class="dc-swatch" style={{ background: `var(${words.colour})` }} />
        <a href={link("timeline", [], { sel: lane.id, t0: String(t0), t1: String(t1) })} title={`${words.meaning} Show ${row.times > 1 ? "the longest of these moments" : "this moment"}.`}>{name}</a>
        {row.key === "decode" && perToken !== null && <span class="muted"> {duration(perToken)} a token</span>}
        {row.times > 1 && <span class="muted"> {row.times}×</span>}
      </td>
      <td class="num">{duration(row.seconds)}</td>
      <td class="num">{percent(row.seconds / all)}</td>
    </tr>
  );
}

/** What of the request's time is not recorded; "" where all of it is. */
export function unknownOf(account: Account, trace: Trace): string {
  const kept = account.kept > 0 ? `Then its KV was kept for a follow-up for ${duration(account.kept)}, which is not part of it.` : "";
  const answer = account.served?.run.span.attributes?.["gen_ai.response.id"];
  const http = answer && !account.served?.http && !account.open
    ? "What passed over HTTP before and after the run is not recorded for it." : "";
  if (account.served) return [http, kept].filter(Boolean).join(" ");
  const why = account.open && trace.runs.length > 0
    ? "What the server did before and after is told by spans, which are written when a turn ends."
    : "This is the engine's time only: no span tells what the server did before and after, as of requests that vLLM's own server answers.";
  return [why, kept].filter(Boolean).join(" ");
}
