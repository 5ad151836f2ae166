// Server-sent events read from a stream, since EventSource cannot send an API key.

export interface ServerEvent {
  event: string;
  id: string;
  data: string;
}

/** Cuts text that comes in pieces into events; comments are left out. */
export class EventReader {
  private rest = "";

  /** The events that are complete with this piece. */
  feed(text: string): ServerEvent[] {
    this.rest = (this.rest + text).replaceAll("\r\n", "\n");
    const blocks = this.rest.split("\n\n");
    this.rest = blocks.pop() ?? "";
    return blocks.map(eventOf).filter((one) => one !== null);
  }
}

function eventOf(block: string): ServerEvent | null {
  const event: ServerEvent = { event: "message", id: "", data: "" };
  const data: string[] = [];
  let any = false;
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    if (colon === 0) continue;
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") data.push(value);
    else if (name === "event" || name === "id") event[name] = value;
    else continue;
    any = true;
  }
  event.data = data.join("\n");
  return any ? event : null;
}
