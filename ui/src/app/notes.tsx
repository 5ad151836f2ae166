// What is to be known of the shown recording: losses, errors, breaks, coarse lanes.
import { count, counted } from "../format";
import { JoinedNote } from "./recordings/servers";
import { FileNote } from "./recordings/openfile";
import { link, route } from "./router";
import { fresh, nameOf } from "./sharing/named";
import { connection, current, mishap, recordings, version } from "./state";

export function Notes() {
  version.value;
  const loaded = current.value;
  if (!loaded) return null;
  const lost = loaded.trace.gaps.reduce((sum, gap) => sum + (gap.lost ?? 0), 0);
  const newest = recordings.value.find((one) => one.live && one !== loaded.recording);
  const deleted = !recordings.value.includes(loaded.recording) && !loaded.parts;
  return (
    <>
      <FileNote />
      <JoinedNote />
      {deleted && <p class="note" role="status">This recording was deleted. It is shown as far as it was read, until the page is loaded again.</p>}
      {loaded.state === "error" && !loaded.trace.empty && (
        <p class="note bad" role="alert">The recording is shown as far as it was read. {loaded.error}</p>
      )}
      {loaded.trace.gaps.length > 0 && (
        <p class="note">
          {lost ? count(lost) : "Some"} entries of this recording were lost ({loaded.trace.gaps[0].why ?? "the reason is not known"}): figures around them are incomplete.
        </p>
      )}
      {loaded.trace.broken > 0 && <p class="note">{counted(loaded.trace.broken, "entry", "entries")} of this recording could not be read and {loaded.trace.broken === 1 ? "is" : "are"} left out.</p>}
      {mishap.value && <p class="note bad" role="alert">{mishap.value}</p>}
      {connection.value.state === "ended" && !newest && (
        <p class="note" role="status">The server has stopped, and this recording with it. When it runs again its new recording is offered here.</p>
      )}
      {connection.value.state === "ended" && newest && (
        <p class="note" role="status">
          This recording has ended; the server makes another one now. <a href={link("timeline", [], fresh(nameOf(newest)))}>Show it</a>
        </p>
      )}
      {connection.value.state === "reconnecting" && <p class="note" role="status">{connection.value.text}</p>}
      {[loaded, ...(loaded.parts ?? [])].some(({ recording }) => recording.about.lanes === "coarse") && route.value.view === "timeline" && (
        <p class="note">Lanes of this recording are coarse: they were made from results, not from the scheduler's own records.</p>
      )}
    </>
  );
}
