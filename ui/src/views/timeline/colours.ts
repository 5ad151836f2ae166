// The theme's colours as a canvas needs them, and the patterns that tell states apart without colour.
import { STATES } from "../../model/lane";

export interface Colours {
  bg: string;
  panel: string;
  sunken: string;
  line: string;
  strong: string;
  ink: string;
  ink2: string;
  ink3: string;
  accent: string;
  soft: string;
  bad: string;
  /** Plain colours by state. */
  state: string[];
  /** Colours or patterns by state. */
  fill: (string | CanvasPattern)[];
}

/** Read the theme's colours from the page, for a canvas with `ratio` device pixels per pixel. */
export function coloursOf(context: CanvasRenderingContext2D, ratio: number): Colours {
  const style = getComputedStyle(document.documentElement);
  const get = (name: string): string => style.getPropertyValue(`--${name}`).trim();
  const state = STATES.map((name) => get(`state-${name}`));
  const ink = get("ink");
  const colours: Colours = {
    bg: get("bg"), panel: get("panel"), sunken: get("sunken"), line: get("line"), strong: get("line-strong"),
    ink, ink2: get("ink-2"), ink3: get("ink-3"), accent: get("accent"), soft: get("accent-soft"), bad: get("bad"),
    state, fill: [...state],
  };
  STATES.forEach((name, code) => {
    const pattern = PATTERNS[name];
    if (pattern) colours.fill[code] = tile(context, ratio, state[code], pattern === "light" ? ink : get("panel"), name) ?? state[code];
  });
  return colours;
}

/** States with a pattern, and whether its lines are the ink's colour or the paper's. */
const PATTERNS: Record<string, "light" | "paper" | undefined> = {
  loading: "paper", recompute: "paper", lost: "paper", offloaded: "light", dropped: "light", person: "light",
};

/** Lines on an 8 by 8 tile: diagonals, a lattice, level lines, dots, uprights. */
const STROKES: Record<string, [number, number, number, number][]> = {
  loading: [[-2, 10, 10, -2], [-2, 2, 2, -2], [6, 10, 10, 6]],
  recompute: [[-1, 9, 9, -1], [-1, -1, 9, 9]],
  offloaded: [[0, 2, 8, 2], [0, 6, 8, 6]],
  dropped: [[1, 2, 2.2, 2], [5, 6, 6.2, 6]],
  person: [[2, 0, 2, 8], [6, 0, 6, 8]],
  lost: [[-2, -2, 10, 10], [-2, 6, 2, 10], [6, -2, 10, 2]],
};

function tile(
  context: CanvasRenderingContext2D, ratio: number, colour: string, line: string, name: string,
): CanvasPattern | null {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = Math.round(8 * ratio);
  const pen = canvas.getContext("2d");
  if (!pen) return null;
  pen.scale(canvas.width / 8, canvas.height / 8);
  pen.fillStyle = colour;
  pen.fillRect(0, 0, 8, 8);
  pen.strokeStyle = line;
  pen.globalAlpha = line === "light" ? 0.3 : 0.45;
  pen.lineWidth = name === "dropped" ? 1.4 : 1.1;
  pen.beginPath();
  for (const [x0, y0, x1, y1] of STROKES[name]) {
    pen.moveTo(x0, y0);
    pen.lineTo(x1, y1);
  }
  pen.stroke();
  const pattern = context.createPattern(canvas, "repeat");
  pattern?.setTransform(new DOMMatrix().scale(8 / canvas.width));
  return pattern;
}
