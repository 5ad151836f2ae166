// Fills that differ in pattern as well as in colour, for canvases.

export type Pattern = "plain" | "hatched" | "dotted" | "crossed";

const SIZE = 8;

/** The value of a CSS custom property of the page. */
export function property(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Return a fill of `colour` for a pen; the pattern is drawn over it in `ink`. */
export function fill(
  pen: CanvasRenderingContext2D, colour: string, pattern: Pattern, ink: string,
): string | CanvasPattern {
  if (pattern === "plain") return colour;
  const ratio = window.devicePixelRatio || 1;
  const tile = document.createElement("canvas");
  tile.width = tile.height = SIZE * ratio;
  const tilePen = tile.getContext("2d");
  if (!tilePen) return colour;
  tilePen.scale(ratio, ratio);
  tilePen.fillStyle = colour;
  tilePen.fillRect(0, 0, SIZE, SIZE);
  tilePen.strokeStyle = tilePen.fillStyle = ink;
  tilePen.globalAlpha = 0.35;
  draw(tilePen, pattern);
  return pen.createPattern(tile, "repeat") ?? colour;
}

function draw(pen: CanvasRenderingContext2D, pattern: Pattern): void {
  pen.beginPath();
  if (pattern === "dotted") {
    pen.arc(SIZE / 4, SIZE / 4, 0.9, 0, 7);
    pen.arc((3 * SIZE) / 4, (3 * SIZE) / 4, 0.9, 0, 7);
    pen.fill();
    return;
  }
  // The diagonal goes on in the neighbouring tiles, so its ends are drawn in the corners too.
  for (const shift of [-SIZE, 0, SIZE]) {
    pen.moveTo(shift - 1, SIZE + 1);
    pen.lineTo(shift + SIZE + 1, -1);
    if (pattern !== "crossed") continue;
    pen.moveTo(shift - 1, -1);
    pen.lineTo(shift + SIZE + 1, SIZE + 1);
  }
  pen.stroke();
}
