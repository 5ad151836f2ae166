// A pause as the page shows it: its opening and its end, which are two entries, as one.
import type { Decision, Inputs, OpeningEntry, PauseEntry, Prices, Wanted } from "./records";

const PERSON = "person:";
/** Times of decisions are rounded to this, in seconds. */
const CLOSE = 2e-6;

export class Pause {
  readonly request: string;
  /** When it began, in seconds. */
  readonly at: number;
  opening: OpeningEntry | null = null;
  /** Null while the pause goes on, and where the engine died meanwhile. */
  end: PauseEntry | null = null;
  /** When the engine died under it, or when its session went on in the next one; null where neither happened. */
  lostAt: number | null = null;

  constructor(request: string, at: number) {
    this.request = request;
    this.at = at;
  }

  private get either(): OpeningEntry | PauseEntry | null {
    return this.opening ?? this.end;
  }

  get session(): string {
    return this.either?.session ?? this.request;
  }

  /** The tool's name; records put `person:` before it where somebody has to answer. */
  get tool(): string | null {
    const said = this.either?.tool ?? null;
    return said?.startsWith(PERSON) ? said.slice(PERSON.length) : said;
  }

  /** Whether it waits for a human. */
  get person(): boolean {
    return this.opening?.person ?? (this.either?.tool?.startsWith(PERSON) ?? false);
  }

  get contextTokens(): number | null {
    return this.either?.context_tokens ?? null;
  }

  /** Blocks that only it held when it began. */
  get blocks(): number | null {
    return this.either?.blocks ?? null;
  }

  get predictedSeconds(): number | null {
    return this.either?.predicted_seconds ?? null;
  }

  get deadlineSeconds(): number | null {
    return this.opening?.deadline_seconds ?? null;
  }

  /** The name of the policy that decided; null in records that lack openings. */
  get policy(): string | null {
    return this.opening?.handling ?? null;
  }

  get prices(): Prices {
    return this.either?.prices ?? {};
  }

  /** What the handling saw; null in records that lack openings. */
  get inputs(): Inputs | null {
    return this.opening?.inputs ?? null;
  }

  get decisions(): Decision[] {
    return this.end?.decisions ?? [];
  }

  /** How long it lasted until the result came; null while it goes on. */
  get seconds(): number | null {
    if (this.end || this.lostAt === null) return this.end?.pause_seconds ?? null;
    return Math.max(0, this.lostAt - this.at);
  }

  /** `preserve`, `discard`, `swap` or `none`; null while it goes on. */
  get handling(): string | null {
    return this.end?.handling ?? null;
  }

  /** `resumed`, `followed`, `ended`, `lost` with the engine; `open` while it goes on. */
  get outcome(): string {
    if (this.end) return this.end.outcome ?? "ended";
    return this.lostAt === null ? "open" : "lost";
  }

  /** Whether it ended since the last of its KV was taken, as of a finished request whose follow-up was awaited. */
  get givenUp(): boolean {
    const last = this.decisions.at(-1);
    return this.outcome === "ended" && last !== undefined && Math.abs(last[0] - (this.seconds ?? NaN)) < CLOSE;
  }

  /** How long others wanted its memory, in the pause and while it queued behind it; null while it goes on. */
  get wantedSeconds(): number | null {
    return this.end?.wanted_seconds ?? null;
  }

  /** How long it lasted until it ran again: the pause and its queue; null while it goes on. */
  get wholeSeconds(): number | null {
    return this.seconds === null ? null : this.seconds + (this.end?.queue_seconds ?? 0);
  }

  /** How many other requests lacked blocks meanwhile. */
  get wantedRequests(): number {
    return this.end?.wanted_requests ?? 0;
  }

  /** Those that lacked blocks longest, and for how long. */
  get wantedBy(): Wanted[] {
    return this.end?.wanted_by ?? [];
  }

  /** Whether an earlier version priced it, by another measure. */
  get pricedOtherwise(): boolean {
    return typeof this.end?.cost === "number" && typeof this.end.queue_cost !== "number";
  }

  /** Whether keeping its KV cost nothing: nobody wanted the memory, and none of it was brought back. */
  get free(): boolean {
    return this.wantedSeconds === 0 && typeof this.end?.regret !== "number";
  }

  /** Block-seconds that it cost others and itself; null where it is not known. */
  get cost(): number | null {
    return this.pricedOtherwise ? null : (this.end?.cost ?? null);
  }

  /** The parts of `cost`: memory held until the result, memory held while it queued, and work; null where it is not known. */
  get parts(): { paused: number; queued: number; work: number } | null {
    const { cost } = this;
    if (cost === null) return null;
    const [queued, work] = [this.end?.queue_cost ?? 0, this.end?.work_cost ?? 0];
    return { paused: Math.max(0, cost - queued - work), queued, work };
  }

  /** Whether nobody wanted its memory and it was loaded or computed again all the same. */
  get needless(): boolean {
    return this.wantedSeconds === 0 && (this.regret ?? 0) > 0;
  }

  /** What each alternative would have cost; null where it is not known, or where keeping cost nothing. */
  get hindsight(): Prices | null {
    return this.pricedOtherwise ? null : (this.end?.hindsight ?? null);
  }

  /** Block-seconds beyond the cheapest alternative; null where it is not known, or where keeping cost nothing. */
  get regret(): number | null {
    return this.pricedOtherwise ? null : (this.end?.regret ?? null);
  }
}
