// One question or call that waits for the reader: what it is in full, and what they may say to it.
import { useEffect, useRef, useState } from "preact/hooks";
import { link } from "../app/router";
import { beat, current, nowOf } from "../app/state";
import { brief, count, duration, moment } from "../format";
import { type Item, disclosed } from "./items";
import "./people.css";
import { askers, endings, refusals, requests, say, sending } from "./waiting";

export function ItemCard({ item, linked = true }: { item: Item; linked?: boolean }) {
  const ending = endings.value.get(item.id);
  const approval = item.kind === "approval";
  const asker = askers.value.get(item.id);
  const request = linked ? requests.value.get(item.id) : undefined;
  return (
    <article class="pn-card" data-testid="pending" data-id={item.id}>
      <h3>{approval ? <>May <span class="mono">{disclosed(item.tool)}</span> run?</> : <>A question of <span class="mono">{disclosed(item.tool)}</span></>}</h3>
      <p class="small soft">
        Asked at {moment(item.created, 0)}{ending ? "" : <>; <Deadline item={item} /></>}
        {request && <>; <a href={link("timeline", [], { sel: request })}>request {brief(request)}</a></>}
      </p>
      {asker && (asker.who || asker.question) && (
        <p class="small" data-testid="asker">
          {asker.who && <>For <b>{disclosed(asker.who)}</b></>}
          {asker.who && asker.question && ", who asked: "}
          {asker.question && <q dir="auto">{disclosed(asker.question)}</q>}
        </p>
      )}
      {item.state === "orphaned" && !ending && (
        <p class="note">The server that asked has ended. An answer counts when the same request is sent again.</p>
      )}
      {approval ? <Arguments text={item.arguments} /> : <pre class="pn-text" dir="auto">{disclosed(item.question)}</pre>}
      {ending ? <Ending text={ending.text} /> : approval ? <Decide item={item} /> : <Answer item={item} />}
      {!ending && refusals.value.get(item.id) && <p class="note bad" role="alert">{refusals.value.get(item.id)}</p>}
    </article>
  );
}

function Arguments({ text }: { text: string }) {
  return (
    <>
      <h4>Arguments, all {count(text.length)} characters</h4>
      <pre class="pn-text mono" dir="ltr" tabIndex={0} aria-label="Arguments of the call">{disclosed(text)}</pre>
    </>
  );
}

function Deadline({ item }: { item: Item }) {
  beat.value;
  const loaded = current.value;
  const left = item.deadline - (loaded ? nowOf(loaded) : Date.now() / 1000);
  const otherwise = item.kind === "approval" ? "it is not run" : item.default === null ? "the call fails" : `the answer is “${disclosed(item.default)}”`;
  if (left <= 0) return <>its deadline has passed</>;
  return <>without an answer in {duration(left < 60 ? Math.ceil(left) : left)} (at {moment(item.deadline, 0)}) {otherwise}</>;
}

/** The outcome, to which the focus goes: the button that had it is gone. */
function Ending({ text }: { text: string }) {
  const line = useRef<HTMLParagraphElement>(null);
  useEffect(() => {
    const active = document.activeElement;
    if (!active || active === document.body || active.tagName === "DIALOG") line.current?.focus();
  }, []);
  return <p ref={line} class="pn-ending" role="status" tabIndex={-1}>{text}</p>;
}

function Decide({ item }: { item: Item }) {
  const [read, setRead] = useState(false);
  const [reason, setReason] = useState("");
  const busy = sending.value.has(item.id);
  return (
    <div class="pn-say">
      <label class="pn-wide">
        Reason for the model, if you deny it
        <input value={reason} maxLength={4000} autocomplete="off" onInput={(event) => setReason(event.currentTarget.value)} />
      </label>
      <button type="button" disabled={busy} onClick={() => void say(item, { approve: false, reason: reason.trim() })}>Deny</button>
      <span class="grow" />
      {/* Enter does not tick a box, so that no key that was meant for something else approves a call. */}
      <label class="pn-read">
        <input type="checkbox" checked={read} onChange={(event) => setRead(event.currentTarget.checked)} />
        I have read the arguments
      </label>
      <button type="button" class="primary" disabled={busy || !read} onKeyDown={once} onClick={() => void say(item, { approve: true })}>
        Approve
      </button>
    </div>
  );
}

function Answer({ item }: { item: Item }) {
  const [text, setText] = useState("");
  const busy = sending.value.has(item.id);
  return (
    <div class="pn-say">
      {item.options.length > 0 && (
        <fieldset class="pn-options">
          <legend>Proposed answers</legend>
          {item.options.map((option) => (
            <label key={option}>
              <input type="radio" name={`answer-${item.id}`} checked={text === option} onChange={() => setText(option)} />
              {disclosed(option)}
            </label>
          ))}
        </fieldset>
      )}
      <label class="pn-wide">
        {item.options.length ? "Your answer, one of these or another" : "Your answer"}
        <textarea rows={2} maxLength={4000} value={text} onInput={(event) => setText(event.currentTarget.value)} />
      </label>
      <span class="grow" />
      <button type="button" class="primary" disabled={busy || !text.trim()} onKeyDown={once} onClick={() => void say(item, { answer: text })}>
        Answer
      </button>
    </div>
  );
}

/** A key that is held down presses a button again and again: only its first press counts. */
function once(event: KeyboardEvent): void {
  if (event.repeat) event.preventDefault();
}
