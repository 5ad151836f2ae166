// Of several recordings that are shown as one: choosing one of them, and what is shown of one alone.
import { count, counted } from "../../format";
import { route, setQuery } from "../router";
import { fresh, nameOf, named } from "../sharing/named";
import { current, joined, recordings, version } from "../state";
import { daysOf, joinedName, namesIn } from "../together";

/** Views of what an engine does, step by step and block by block. */
export const OF_ONE: ReadonlySet<string> = new Set(["memory", "predictions", "compare", "plan"]);

export function ServerPicker() {
  const whole = joined.value;
  if (!whole?.parts) return null;
  const shown = current.value;
  return (
    <select class="picker" aria-label="Server" data-testid="server" value={shown && shown !== whole ? nameOf(shown.recording) : ""}
      onChange={(event) => setQuery({ part: event.currentTarget.value })}>
      <option value="">all {count(whole.parts.length)} recordings</option>
      {whole.parts.map((part) => <option key={nameOf(part.recording)} value={nameOf(part.recording)}>{part.trace.server}</option>)}
    </select>
  );
}

/** Stands in for a view that several engines have no common figures for. */
export function ChooseOne({ title, alone }: { title: string; alone: boolean }) {
  const choose = (name: string): void => setQuery(alone ? fresh(name) : { part: name });
  return (
    <div class="center">
      <div class="card panel" data-testid="choose-one">
        <h2>{title}: choose one recording</h2>
        <p>Each engine has blocks, steps and predictions of its own. Added up they would be nobody's, so this view shows one at a time.</p>
        <ul class="gone-list">
          {joined.value?.parts?.map((part) => (
            <li key={nameOf(part.recording)}><button onClick={() => choose(nameOf(part.recording))}>{part.trace.server}</button></li>
          ))}
        </ul>
      </div>
    </div>
  );
}

/** Says which recordings are shown as one, which could not be read, and which others there are by now. */
export function JoinedNote() {
  version.value;
  const whole = joined.value;
  if (!whole?.parts) return null;
  const names = namesIn(route.value.query.rec ?? "");
  const there = new Set(whole.parts.map((part) => nameOf(part.recording)));
  const failed = whole.parts.filter((part) => part.state === "error");
  const gone = names.filter((name) => !named(recordings.value, name)).length;
  const unlike = ["model", "block_size"].some((fact) => whole.parts!.some(({ recording }) => recording.about[fact] !== whole.recording.about[fact]));
  const later = daysOf(recordings.value).find(({ list }) => whole.parts!.every((part) => list.includes(part.recording)));
  const more = later?.list.filter((one) => one.live && !there.has(nameOf(one))) ?? [];
  return (
    <>
      {current.value === whole && (
        <p class="note" data-testid="joined">
          {counted(whole.parts.length, "recording")} in one: an id has its recording's number before it. Times are by each server's own clock. Steps and blocks are shown of one recording: choose it above.{" "}
          {unlike && "Their models or block sizes differ: a block-second of one is not one of another."}
        </p>
      )}
      {failed.map((part) => <p key={nameOf(part.recording)} class="note bad" role="alert">{part.trace.server} could not be read to its end. {part.error}</p>)}
      {gone > 0 && <p class="note" role="status">{counted(gone, "recording")} of the link {gone === 1 ? "is" : "are"} not here.</p>}
      {more.length > 0 && (
        <p class="note" role="status">
          {counted(more.length, "more recording")} of this day {more.length === 1 ? "is" : "are"} made now.{" "}
          <button onClick={() => setQuery({ rec: joinedName([...more, ...whole.parts!.map((part) => part.recording)]) })}>Add</button>
        </p>
      )}
    </>
  );
}
