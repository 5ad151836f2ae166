// The page's font and readable text on a colour, for canvases.

let family = "";

/** A font of the page's family in pixels. */
export function fontOf(size: number, weight = ""): string {
  family ||= getComputedStyle(document.body).fontFamily;
  return `${weight} ${size}px ${family}`.trim();
}

const known = new Map<string, string>();

/** Black or white, whichever is read more easily on a colour of the form #rrggbb. */
export function textOn(colour: string): string {
  let text = known.get(colour);
  if (!text) {
    const [r, g, b] = [1, 3, 5].map((i) => (Number.parseInt(colour.slice(i, i + 2), 16) / 255) ** 2.2);
    text = 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.24 ? "#10151d" : "#ffffff";
    known.set(colour, text);
  }
  return text;
}
