// Numbers and times as people read them, with their units.

const MISSING = "–";
const group = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** A whole number with thousands separated by thin spaces. */
export function count(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return MISSING;
  return group.format(value).replaceAll(",", "\u202f");
}

/** A number with three significant digits, thousands separated; what is next to nothing is told as that. */
export function number(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return MISSING;
  const size = Math.abs(value);
  if (size >= 100) return count(Math.round(value));
  if (size === 0) return "0";
  if (size < 0.001) return value < 0 ? "> −0.001" : "< 0.001";
  return trimmed(value.toPrecision(3));
}

/** A size with its short multiple: 950, 12.4k, 3.1M. */
export function short(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return MISSING;
  const size = Math.abs(value);
  // On an axis each tick must be told from the next.
  if (size > 0 && size < 0.001) return value.toExponential(0);
  if (size < 1000) return number(value);
  if (size < 1e6) return `${trimmed((value / 1e3).toPrecision(3))}k`;
  if (size < 1e9) return `${trimmed((value / 1e6).toPrecision(3))}M`;
  return `${trimmed((value / 1e9).toPrecision(3))}G`;
}

/** A duration with three significant digits: 12.4 ms, 3.02 s, 5 min 12 s, 2 h 05 min. */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return MISSING;
  if (!Number.isFinite(seconds)) return "∞";
  if (seconds < 0) return `−${duration(-seconds)}`;
  if (seconds === 0) return "0 s";
  if (seconds < 0.9995e-3) return `${trimmed((seconds * 1e6).toPrecision(3))} µs`;
  if (seconds < 0.9995) return `${plain(seconds * 1e3)} ms`;
  if (seconds < 59.95) return `${plain(seconds)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return joined(Math.floor(whole / 60), "min", whole % 60, "s");
  if (whole < 86400) return joined(Math.floor(whole / 3600), "h", Math.floor((whole % 3600) / 60), "min");
  return joined(Math.floor(whole / 86400), "d", Math.floor((whole % 86400) / 3600), "h");
}

/** A price or a regret: block-seconds. */
export function blockSeconds(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return MISSING;
  return `${Math.abs(value) >= 10000 ? short(value) : number(value)} blk·s`;
}

/** `count` and a noun in the right number: 1 block, 2 blocks. */
export function counted(value: number | null | undefined, noun: string, nouns = `${noun}s`): string {
  return `${count(value)} ${value === 1 ? noun : nouns}`;
}

/** A size in memory. */
export function mebibytes(bytes: number): string {
  return `${short(bytes / 2 ** 20)} MiB`;
}

/** A share in percent. */
export function percent(share: number | null | undefined): string {
  if (share === null || share === undefined || !Number.isFinite(share)) return MISSING;
  return `${trimmed((share * 100).toFixed(Math.abs(share) < 0.1 ? 1 : 0))}\u202f%`;
}

/** How one value compares with another: "1.4×". */
export function ratio(value: number, base: number): string {
  if (!Number.isFinite(value / base) || base === 0) return MISSING;
  return `${trimmed((value / base).toPrecision(3))}×`;
}

/** Whether times are Unix times; a simulation's begin at 0. */
export const isWallClock = (time: number): boolean => time > 1e8;

/** A moment: the local time of day, or seconds since the beginning of a simulation. */
export function moment(time: number | null | undefined, digits = 3): string {
  if (time === null || time === undefined || !Number.isFinite(time)) return MISSING;
  if (!isWallClock(time)) return `${time.toFixed(digits).replace("-", "−")} s`;
  const date = new Date(time * 1000);
  const clock = [date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join(":");
  if (digits === 0) return clock;
  const rest = Math.floor((time - Math.floor(time)) * 10 ** digits);
  return `${clock}.${String(rest).padStart(digits, "0")}`;
}

/** A day and a time of day, or seconds of a simulation. */
export function day(time: number | null | undefined): string {
  if (time === null || time === undefined || !isWallClock(time)) return moment(time, 0);
  const date = new Date(time * 1000);
  const name = date.toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" });
  return `${name}, ${moment(time, 0)}`;
}

/** An id cut in the middle, where it is long. */
export function brief(id: string, most = 18): string {
  if (id.length <= most) return id;
  const tail = Math.floor((most - 1) / 2);
  return `${id.slice(0, most - 1 - tail)}…${id.slice(-tail)}`;
}

const two = (value: number): string => String(value).padStart(2, "0");
const trimmed = (text: string): string =>
  text.includes(".") && !text.includes("e") ? text.replace(/\.?0+$/, "") : text;
const plain = (value: number): string => (value >= 99.95 ? value.toFixed(0) : value.toPrecision(3));
const joined = (large: number, unit: string, small: number, rest: string): string =>
  small ? `${large} ${unit} ${two(small)} ${rest}` : `${large} ${unit}`;
