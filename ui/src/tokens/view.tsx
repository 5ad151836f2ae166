// The tokens of a session as a tree: each branch a bar of its segments, with what trainers take of it.
import { useEffect, useState } from "preact/hooks";
import { current, source } from "../app/state";
import { count, counted, day, duration, number } from "../format";
import { storedKey } from "../sources/key";
import { ServerSource } from "../sources/server";
import { visible } from "../views/session/content";
import "./tokens.css";
import { type Answer, type Branch, MEANS, SOURCES, type Segment, type Tree, ask } from "./tree";

/** The tokens of a session, behind a button. Nothing, unless this server keeps them. */
export function Tokens({ session }: { session: string }) {
  const from = source.value;
  const [answer, setAnswer] = useState<Answer | null>(null);
  useEffect(() => setAnswer(null), [session, from]);
  if (!session || !(from instanceof ServerSource) || !current.value?.recording.about.trajectories) return null;
  const read = (): void => {
    void ask(from.base, session, storedKey()).then(setAnswer);
  };
  return (
    <section class="tokens" aria-label="Tokens" data-testid="tokens">
      <button onClick={read}>{answer ? "Read the tokens again" : "Show the tokens as a tree"}</button>
      {answer?.why && <p class="note bad" role="alert">{visible(answer.why)}</p>}
      {answer && answer.trees.length > 0 && <Trees trees={answer.trees} />}
    </section>
  );
}

export function Trees({ trees }: { trees: readonly Tree[] }) {
  const longest = trees.reduce((most, tree) => tree.branches.reduce((more, one) => Math.max(more, one.length), most), 1);
  return (
    <>
      <ul class="tokens-legend small">
        {SOURCES.map((one) => <li key={one}><i class={`tokens-${one}`} aria-hidden="true" /><b>{one}</b> {MEANS[one]}</li>)}
      </ul>
      {trees.map((tree) => <TreeView key={tree.session} tree={tree} longest={longest} />)}
    </>
  );
}

function TreeView({ tree, longest }: { tree: Tree; longest: number }) {
  return (
    <div class="tokens-tree" data-testid="tokens-tree">
      <h4 class="mono">{visible(tree.session)}</h4>
      <span class="facts">
        {tree.parent !== null && <span>below <span class="mono">{visible(tree.parent)}</span></span>}
        <span>{counted(tree.branches.length, "branch", "branches")}</span>
        {tree.rewards.map(([name, reward]) => <span key={name}>{visible(name)} <b>{number(reward)}</b></span>)}
        {!tree.rewards.length && <span class="muted">no reward</span>}
      </span>
      {tree.branches.map((one) => <BranchView key={one.id} branch={one} longest={longest} own={one.session === tree.session} />)}
    </div>
  );
}

function BranchView({ branch, longest, own }: { branch: Branch; longest: number; own: boolean }) {
  const share = (tokens: number): string => `${((100 * tokens) / longest).toFixed(3)}%`;
  return (
    <details class="tokens-branch" data-testid="tokens-branch">
      <summary>
        <span class="facts" style={{ marginLeft: `${Math.min(branch.depth, 12) * 16}px` }}>
          <span class="mono">{visible(branch.id)}</span>
          {branch.model !== null && <span>{visible(branch.model)}</span>}
          <span>{counted(branch.length, "token")}</span>
          {branch.parent !== null && <span>{count(branch.point)} of them shared</span>}
          <span>{own ? <><b>{count(branch.counts)}</b> count for the loss</> : "of the session that it was forked from"}</span>
        </span>
        <span class="tokens-bar" role="img" aria-label={said(branch)}>
          {branch.point > 0 && <i class="tokens-shared" style={{ width: share(branch.point) }} />}
          {branch.segments.map((one, at) => <i key={at} class={`tokens-${one.source}`} style={{ width: share(one.tokens) }} title={line(one)} />)}
        </span>
      </summary>
      <table>
        <thead><tr><th>source</th><th class="num">tokens</th><th class="num">mask</th><th>ended</th><th>began</th><th class="num">took</th><th class="num">cached</th><th class="num">paused before</th><th class="num">media</th></tr></thead>
        <tbody>{branch.segments.map((one, at) => <Row key={at} segment={one} />)}</tbody>
      </table>
    </details>
  );
}

function Row({ segment }: { segment: Segment }) {
  return (
    <tr>
      <th><i class={`tokens-${segment.source}`} aria-hidden="true" /> {segment.source}</th>
      <td class="num">{count(segment.tokens)}</td>
      <td class="num">{segment.source === "sampled" ? 1 : 0}</td>
      <td>{segment.stop === null ? "" : visible(segment.stop)}</td>
      <td>{segment.startedAt === null ? "" : day(segment.startedAt)}</td>
      <td class="num">{segment.seconds === null ? "" : duration(segment.seconds)}</td>
      <td class="num">{segment.cached === null ? "" : count(segment.cached)}</td>
      <td class="num">{segment.paused === null ? "" : duration(segment.paused)}</td>
      <td class="num">{segment.media || ""}</td>
    </tr>
  );
}

const line = (one: Segment): string => `${one.source}, ${counted(one.tokens, "token")}${one.seconds === null ? "" : `, ${duration(one.seconds)}`}`;

/** A branch in words, for who does not see the bar. */
function said(branch: Branch): string {
  const shared = branch.point > 0 ? [`shared, ${counted(branch.point, "token")}`] : [];
  return [...shared, ...branch.segments.slice(0, 20).map(line)].join("; ") + (branch.segments.length > 20 ? "; …" : "");
}
