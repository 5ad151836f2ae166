// A document of recordings read in pieces: the text of a large one is longer than the longest string of a browser.

/** About so many bytes of entries are parsed at once. */
const GROUP = 1 << 20;
const QUOTE = 0x22, BACKSLASH = 0x5c, COMMA = 0x2c, OPEN_LIST = 0x5b, CLOSE_LIST = 0x5d, OPEN = 0x7b, CLOSE = 0x7d;
/** How deep {"recordings": [{"data": [ENTRY]}]} holds its entries. */
const LIST = 2, RECORDING = 3, ENTRIES = 4;

/** Reads {"recordings": [{..., "data": [ENTRY, ...]}, ...], ...} and hands its entries on while it comes. */
export class DocumentReader {
  private readonly decoder = new TextDecoder();
  private readonly take: (recording: number, entries: unknown[]) => void;
  /** The document's text without the entries. */
  private rest = "";
  /** Entries that are not parsed yet, and how many bytes they are. */
  private held: string[] = [];
  private bytes = 0;
  private depth = 0;
  private recording = -1;
  private within = false;
  private inList = false;
  private quoted = false;
  private escaped = false;
  /** The last string outside of the entries: the name of what follows it. */
  private word: number[] = [];

  /** `take` gets the entries of the recording with that place in the document, some at a time. */
  constructor(take: (recording: number, entries: unknown[]) => void) {
    this.take = take;
  }

  /** Read more of the document. Throws `SyntaxError` where an entry is no JSON. */
  feed(bytes: Uint8Array): void {
    let from = 0;
    for (let i = 0; i < bytes.length; i++) {
      const byte = bytes[i];
      if (this.quoted) this.quote(byte);
      else if (byte === QUOTE) this.begin();
      else if (byte === OPEN || byte === OPEN_LIST) {
        this.depth += 1;
        if (this.opens(byte)) {
          this.keep(bytes.subarray(from, i + 1));
          from = i + 1;
          this.within = true;
        }
      } else if (byte === CLOSE || byte === CLOSE_LIST) {
        if (this.within && this.depth === ENTRIES) {
          this.keep(bytes.subarray(from, i));
          from = i;
          this.parse();
          this.within = false;
        }
        this.depth -= 1;
      } else if (byte === COMMA && this.within && this.depth === ENTRIES && this.bytes + i - from > GROUP) {
        this.keep(bytes.subarray(from, i));
        from = i + 1;
        this.parse();
      }
    }
    this.keep(bytes.subarray(from));
  }

  /** The document, with empty lists of entries. Throws `SyntaxError` where it is not whole. */
  end(): unknown {
    return JSON.parse(this.rest + this.decoder.decode());
  }

  private begin(): void {
    this.quoted = true;
    if (!this.within) this.word.length = 0;
  }

  private quote(byte: number): void {
    if (this.escaped) this.escaped = false;
    else if (byte === BACKSLASH) this.escaped = true;
    else if (byte === QUOTE) this.quoted = false;
    else if (!this.within && this.word.length < 16) this.word.push(byte);
  }

  /** Whether what has just opened is a list of entries. */
  private opens(byte: number): boolean {
    if (this.within) return false;
    const name = String.fromCharCode(...this.word);
    if (this.depth === LIST) this.inList = byte === OPEN_LIST && name === "recordings";
    if (this.depth === RECORDING && this.inList && byte === OPEN) this.recording += 1;
    return this.depth === ENTRIES && this.inList && byte === OPEN_LIST && name === "data";
  }

  private keep(bytes: Uint8Array): void {
    const text = this.decoder.decode(bytes, { stream: true });
    if (!this.within) this.rest += text;
    else if (text) {
      this.held.push(text);
      this.bytes += bytes.length;
    }
  }

  private parse(): void {
    const entries = JSON.parse(`[${this.held.join("")}]`) as unknown[];
    this.held = [];
    this.bytes = 0;
    if (entries.length) this.take(this.recording, entries);
  }
}
