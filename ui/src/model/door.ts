// What comes in is checked here, once: an entry that breaks its schema is not taken, so that no view meets it later.
import { type Entry, KIND_SHAPES, PART_SHAPES, ROW_SHAPES } from "./records";

/** The farthest time from 0 that an entry may name, in seconds: some 3000 years. Clocks beyond are broken. */
const FARTHEST = 1e11;

type Check = (value: unknown) => boolean;

const isNumber: Check = (value) => typeof value === "number" && Number.isFinite(value);
const SIMPLE: Record<string, Check> = {
  string: (value) => typeof value === "string",
  boolean: (value) => typeof value === "boolean",
  number: isNumber,
  seconds: (value) => isNumber(value) && Math.abs(value as number) <= FARTHEST,
};

const checks = new Map<string, Check>();
const KINDS = new Map(Object.entries(KIND_SHAPES).map(([kind, shape]) => [kind, fieldsOf(shape)]));
/** Kinds whose lists are columns of one table. */
const COLUMNS = new Set(["lanes", "steps"]);

/** Whether an entry is what the schema says of its kind; kinds that are not known are nobody's business. */
export function isSound(entry: Entry): boolean {
  const fields = KINDS.get(entry.kind);
  if (!fields) return true;
  return holds(entry, fields) && (!COLUMNS.has(entry.kind) || even({ ...entry }, fields));
}

type Fields = [name: string, check: Check][];

function fieldsOf(shape: Record<string, string>): Fields {
  return Object.entries(shape).map(([name, type]) => [name, checkOf(type)]);
}

function holds(value: unknown, fields: Fields): boolean {
  for (let i = 0; i < fields.length; i++) {
    if (!fields[i][1]((value as Record<string, unknown>)[fields[i][0]])) return false;
  }
  return true;
}

function checkOf(type: string): Check {
  let check = checks.get(type);
  if (!check) checks.set(type, (check = made(type)));
  return check;
}

function made(type: string): Check {
  if (type.endsWith("!")) return needed(type.slice(0, -1));
  const check = needed(type);
  return (value) => value === undefined || value === null || check(value);
}

function needed(type: string): Check {
  if (type.endsWith("[]")) return listOf(needed(type.slice(0, -2)));
  if (SIMPLE[type]) return SIMPLE[type];
  if (ROW_SHAPES[type]) return rowOf(ROW_SHAPES[type].map(checkOf));
  const fields = fieldsOf(PART_SHAPES[type]);
  return (value) => typeof value === "object" && value !== null && !Array.isArray(value) && holds(value, fields);
}

function listOf(check: Check): Check {
  return (value) => {
    if (!Array.isArray(value)) return false;
    for (let i = 0; i < value.length; i++) if (!check(value[i])) return false;
    return true;
  };
}

function rowOf(columns: Check[]): Check {
  return (value) => Array.isArray(value) && columns.every((check, i) => check(value[i]));
}

/** Whether all columns that there are have the same length. */
function even(columns: Record<string, unknown>, fields: Fields): boolean {
  const length = (columns.at as unknown[]).length;
  return fields.every(([name]) => !Array.isArray(columns[name]) || (columns[name] as unknown[]).length === length);
}
