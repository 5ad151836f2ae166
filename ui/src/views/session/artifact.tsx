// A file that a tool has made, shown in place: pictures and sound, and others as a download.
import { useEffect, useState } from "preact/hooks";
import { source } from "../../app/state";
import { short } from "../../format";
import { visible } from "./content";

const PICTURES = new Set(["image/png", "image/jpeg", "image/webp", "image/gif", "image/svg+xml"]);

type Shown =
  | { state: "loading" }
  | { state: "failed"; why: string }
  | { state: "ready"; kind: "picture" | "sound" | "file"; url: string; size: number };

/** What a file of this type is shown as; only pictures and sound are given to the browser to read. */
export function kindOf(type: string): "picture" | "sound" | "file" {
  const plain = type.split(";", 1)[0].trim().toLowerCase();
  if (PICTURES.has(plain)) return "picture";
  return plain.startsWith("audio/") ? "sound" : "file";
}

export function Artifact({ name }: { name: string }) {
  const [shown, setShown] = useState<Shown>({ state: "loading" });
  const from = source.value;
  useEffect(() => {
    let url = "";
    let left = false;
    setShown({ state: "loading" });
    void read(name).then((ready) => {
      if (ready.state === "ready") url = ready.url;
      if (left) URL.revokeObjectURL(url);
      else setShown(ready);
    });
    return () => {
      left = true;
      if (url) URL.revokeObjectURL(url);
    };
  }, [name, from]);
  return (
    <figure class="artifact" data-testid="artifact">
      {shown.state === "ready" && shown.kind === "picture" && <img src={shown.url} alt={`The picture ${visible(name)}`} />}
      {shown.state === "ready" && shown.kind === "sound" && <audio controls src={shown.url} />}
      <figcaption class="small muted">
        <span class="mono">{visible(name)}</span>
        {shown.state === "loading" && " is being fetched…"}
        {shown.state === "failed" && ` is not shown: ${shown.why}`}
        {shown.state === "ready" && <> {bytes(shown.size)} <a href={shown.url} download={name}>download</a></>}
      </figcaption>
    </figure>
  );
}

const bytes = (size: number): string => short(size).replace(/([kMG]?)$/, " $1B");

async function read(name: string): Promise<Shown> {
  const from = source.peek();
  if (!from) return { state: "failed", why: "there is no source to fetch it from." };
  try {
    const blob = await from.artifact(name);
    const kind = kindOf(blob.type);
    // A file of another type is never opened in the page, whatever it says it is.
    const safe = kind === "file" ? new Blob([blob], { type: "application/octet-stream" }) : blob;
    return { state: "ready", kind, url: URL.createObjectURL(safe), size: blob.size };
  } catch (error) {
    return { state: "failed", why: error instanceof Error ? error.message : String(error) };
  }
}
