// Writing to the clipboard, also where the browser does not offer it to scripts.

/** Copy a text; returns whether it is on the clipboard now. */
export async function toClipboard(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return selected(text);
  }
}

/** The old way, for pages over plain HTTP, which have no `navigator.clipboard`. */
function selected(text: string): boolean {
  const before = document.activeElement as HTMLElement | null;
  const area = document.createElement("textarea");
  area.value = text;
  area.readOnly = true;
  area.className = "hidden-visually";
  document.body.append(area);
  area.select();
  try {
    return document.execCommand("copy");
  } catch {
    return false;
  } finally {
    area.remove();
    before?.focus();
  }
}
