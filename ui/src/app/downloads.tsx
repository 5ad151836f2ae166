// Saving the shown recording as a file: one HTML page, or Perfetto's JSON.
import { signal } from "@preact/signals";
import { current, mishap, source } from "./state";

const open = signal(false);
const busy = signal(false);

export function Downloads() {
  const download = source.value?.download;
  const recording = current.value?.recording;
  if (!download || !recording || recording.joined) return null;
  const save = async (format: "export" | "perfetto", suffix: string): Promise<void> => {
    open.value = false;
    busy.value = true;
    mishap.value = "";
    try {
      offer(await download(recording, format), `caesura-${recording.id}${suffix}`);
    } catch (error) {
      mishap.value = `The file could not be made. ${error instanceof Error ? error.message : ""}`;
    } finally {
      busy.value = false;
    }
  };
  return (
    <span class="menu">
      <button aria-expanded={open.value} disabled={busy.value} onClick={() => (open.value = !open.value)}>
        {busy.value ? "Exporting…" : "Export"}
      </button>
      {open.value && (
        <div onKeyDown={(event) => event.key === "Escape" && (open.value = false)}>
          <button onClick={() => void save("export", ".html")}>One HTML file, to open anywhere</button>
          <button onClick={() => void save("perfetto", ".perfetto.json")}>JSON for Perfetto</button>
        </div>
      )}
    </span>
  );
}

function offer(blob: Blob, name: string): void {
  const url = URL.createObjectURL(blob);
  const anchor = document.createElement("a");
  anchor.href = url;
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
