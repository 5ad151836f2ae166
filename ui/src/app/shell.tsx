// The frame: name, tabs, recordings, connection, theme, and what stands in for a view that has nothing to show.
import { Waiting } from "../people/view";
import { VIEWS, viewOf } from "../views/registry";
import { About } from "./about";
import { Boundary } from "./boundary";
import { HelpDialog } from "./help";
import { Downloads } from "./downloads";
import { KeyDialog } from "./keydialog";
import { helpOpen } from "./keys";
import { Notes } from "./notes";
import { ManageButton, ManageDialog } from "./recordings/manage";
import { DropTarget } from "./recordings/openfile";
import { Picker } from "./recordings/picker";
import { ChooseOne, OF_ONE, ServerPicker } from "./recordings/servers";
import { link, route } from "./router";
import { CopyLink } from "./sharing/copylink";
import { Gone } from "./sharing/gone";
import { moment } from "../format";
import { visible } from "../views/session/content";
import { connection, current, joined, phase, problem, version } from "./state";
import { Failed, NothingRecorded, NothingYet, Reading, Starting } from "./states";
import { setTheme, theme } from "./theme";

export function Shell() {
  version.value;
  const shown = current.value?.trace ?? null;
  const name = viewOf(route.value.view, shown);
  const tabs = Object.entries(VIEWS).filter(([each, { has }]) => !has || each === name || (shown && has(shown)));
  return (
    <div class="shell">
      <header class="bar">
        <h1 class="hidden-visually">{VIEWS[name].title}</h1>
        <a class="brand" href={link("overview")}>
          <Mark />
          Caesura
        </a>
        <nav class="tabs" aria-label="Views">
          {tabs.map(([each, view]) => (
            <a key={each} href={link(each)} aria-current={each === name ? "page" : undefined}>
              {view.title}
            </a>
          ))}
        </nav>
        <div class="bar-tools">
          <Waiting />
          <Connection />
          <Picker />
          <ServerPicker />
          <ManageButton />
          <About />
          <CopyLink />
          <Downloads />
          <ThemeButton />
          <button class="plain" onClick={() => (helpOpen.value = true)} aria-label="Keyboard help" title="Keyboard help (?)">?</button>
        </div>
      </header>
      <div class="notes">
        <DropTarget />
        <Notes />
      </div>
      <main class="stage"><Stage /></main>
      <KeyDialog />
      <HelpDialog />
      <ManageDialog />
    </div>
  );
}

function Stage() {
  if (phase.value === "starting") return <Starting />;
  if (phase.value === "error") return <Failed text={problem.value} />;
  if (phase.value === "empty") return <NothingRecorded />;
  const loaded = current.value;
  version.value;
  if (!loaded) return route.value.query.rec ? <Gone name={route.value.query.rec} /> : null;
  if (loaded.state === "error" && loaded.trace.empty) return <Failed text={loaded.error} />;
  // Figures of a part would look final.
  if (loaded.state === "loading") return <Reading done={loaded.done} total={loaded.total} />;
  if (loaded.trace.empty) return <NothingYet live={loaded.recording.live} broken={loaded.trace.broken} />;
  const name = viewOf(route.value.view, loaded.trace);
  const { component: View, title } = VIEWS[name];
  // Sessions of two recordings are matched by their ids, which have marks here.
  if (joined.value && (loaded.parts ? OF_ONE.has(name) : name === "compare")) return <ChooseOne title={title} alone={name === "compare"} />;
  return <Boundary key={name} name={title}><View /></Boundary>;
}

const CONNECTION = { none: "", live: "Live", reconnecting: "Reconnecting", ended: "Ended" };

function Connection() {
  const { state } = connection.value;
  version.value;
  const loaded = current.value;
  const parts = loaded ? (loaded.parts ?? [loaded]) : [];
  const hit = parts.find(({ recording, trace }) => recording.live && trace.restarts.down);
  const down = hit?.trace.restarts.down;
  if (state === "none") return null;
  if (state === "live" && loaded && down) {
    const text = down.state === "down" ? `Engine down since ${moment(down.at, 0)}` : "Engine given up";
    const named = hit?.trace.server ? `${visible(hit.trace.server)}: ${text}` : text;
    return <span class="status reconnecting" role="status" title={visible(down.why)} data-testid="engine-down"><i />{named}</span>;
  }
  return <span class={`status ${state}`} role="status"><i />{CONNECTION[state]}</span>;
}

const NEXT = { auto: "light", light: "dark", dark: "auto" } as const;
const NAMES = { auto: "as the system", light: "light", dark: "dark" };
const SIGNS = { auto: "◐", light: "○", dark: "●" };

function ThemeButton() {
  const text = `Theme: ${NAMES[theme.value]}. Click for ${NAMES[NEXT[theme.value]]}.`;
  return (
    <button class="plain" onClick={() => setTheme(NEXT[theme.value])} aria-label={text} title={text}>
      {SIGNS[theme.value]}
    </button>
  );
}

/** A line with a pause in its middle. */
function Mark() {
  return (
    <svg width="20" height="20" viewBox="0 0 20 20" aria-hidden="true">
      <path d="M1 10h6.5M12.5 10H19" stroke="currentColor" stroke-width="2.4" stroke-linecap="round" />
      <path d="M9.2 3.5v13M11.4 3.5v13" stroke="var(--accent)" stroke-width="1.5" stroke-linecap="round" transform="skewX(-12)" transform-origin="10 10" />
    </svg>
  );
}
