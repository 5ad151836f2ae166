// Captured content as plain data: messages, their parts, and files that tools have made.
import type { Attribute, SpanEntry } from "../../model/records";

/** A part of a message; `id` and `name` are a call's. */
export interface Part {
  kind: "text" | "reasoning" | "call" | "response" | "other";
  text: string;
  id: string;
  name: string;
}

export interface Message {
  role: string;
  parts: Part[];
}

/** Return the messages of a content attribute; what is no JSON is one message of plain text. */
export function messagesOf(value: Attribute | undefined): Message[] {
  if (typeof value !== "string" || value === "") return [];
  const read = parsed(value);
  if (!Array.isArray(read)) return [{ role: "", parts: [part("text", value)] }];
  return read.filter(isObject).map((message) => ({
    role: text(message.role),
    parts: partsOf(message),
  }));
}

const asked = new WeakMap<SpanEntry, string>();

/** The last message of the user that a turn was sent; read once, since lists are made often. */
export function questionOf(turn: SpanEntry): string {
  const known = asked.get(turn);
  if (known !== undefined) return known;
  const message = messagesOf(turn.attributes?.["gen_ai.input.messages"]).findLast((one) => one.role === "user");
  const title = message?.parts.find((part) => part.kind === "text")?.text.replace(/\s+/g, " ").trim().slice(0, 200) ?? "";
  asked.set(turn, title);
  return title;
}

/** Return the names of files that a call has made: those that it told, and those in its result. */
export function artifactsOf(span: SpanEntry): string[] {
  const told = span.attributes?.["caesura.tool.artifacts"];
  const names = Array.isArray(told) ? told.map(String) : typeof told === "string" ? [told] : [];
  const result = span.attributes?.["gen_ai.tool.call.result"];
  return [...new Set([...names, ...artifactsIn(typeof result === "string" ? result : "")])];
}

/** Return the names of files that a text refers to as /artifacts/NAME. */
export function artifactsIn(said: string): string[] {
  const names = [...said.matchAll(/\/artifacts\/([A-Za-z0-9][A-Za-z0-9._-]*)/g)].map((found) =>
    found[1].replace(/[.]+$/, ""));
  return [...new Set(names)];
}

/** Return a text with its control characters and its changes of direction made visible.
 *
 * A text could otherwise be shown in another order than it has.
 */
export function visible(said: string): string {
  return said.replace(
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g,
    (one) => (one === "\r" ? "" : `⟨U+${one.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`),
  );
}

/** Return JSON in one line if it is short, else indented; what is no JSON object as it is. */
export function readable(said: string): string {
  const read = parsed(said);
  if (typeof read !== "object" || read === null) return said;
  const line = JSON.stringify(read);
  return line.length <= 90 ? line.replaceAll('","', '", "').replaceAll('":', '": ') : JSON.stringify(read, null, 2);
}

type Fields = Record<string, unknown>;

function partsOf(message: Fields): Part[] {
  if (typeof message.content === "string") return [part("text", message.content)];
  if (!Array.isArray(message.parts)) return [];
  return message.parts.filter(isObject).map((one) => {
    const id = text(one.id);
    if (one.type === "text") return part("text", text(one.content));
    if (one.type === "reasoning") return part("reasoning", text(one.content));
    if (one.type === "tool_call") return part("call", text(one.arguments), id, text(one.name));
    if (one.type === "tool_call_response") return part("response", text(one.response), id);
    return part("other", JSON.stringify(one));
  });
}

function part(kind: Part["kind"], said: string, id = "", name = ""): Part {
  return { kind, text: said, id, name };
}

function text(value: unknown): string {
  if (value === null || value === undefined) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}

function parsed(value: string): unknown {
  try {
    return JSON.parse(value);
  } catch {
    return undefined;
  }
}

const isObject = (value: unknown): value is Fields => typeof value === "object" && value !== null;
