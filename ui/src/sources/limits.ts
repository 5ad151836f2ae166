// How large a recording may be: a page that runs out of memory just vanishes, so it stops before that and says why.
import { Trouble } from "./source";

/** What a browser gives a page that does not tell, in bytes. */
const USUAL_HEAP = 2 ** 31;
/** A recording's JSON may take this share of the heap: what is kept of it takes about as much again, and drawing the rest. */
const SHARE = 0.4;

/** Bytes of JSON that a page can take in. */
function mostBytes(): number {
  const { memory } = performance as { memory?: { jsHeapSizeLimit?: number } };
  return (memory?.jsHeapSizeLimit ?? USUAL_HEAP) * SHARE;
}

const STRETCH = "Export a stretch of it instead, such as `caesura trace export --last 10m -o trace.html`, or one between --from TIME and --to TIME.";

/** Says that a recording is too large, and what to do about that. */
const tooLarge = (bytes: number): Trouble =>
  new Trouble(`The recording is larger than this browser lets a page be: ${megabytes(bytes)} of records have been read, and ${megabytes(mostBytes())} fit. ${STRETCH}`);

/** Says that a single entry cannot be read. */
export const tooLong = (): Trouble => new Trouble(`One of its entries is longer than the longest text of a browser, 512 MB. ${STRETCH}`);

/** Throws `Trouble` where more than `bytes` of JSON do not fit. */
export function admit(bytes: number): void {
  if (bytes > mostBytes()) throw tooLarge(bytes);
}

const megabytes = (bytes: number): string => `${Math.round(bytes / 1e6)} MB`;
