// Times and lengths, for people. The zone is chosen once for all of the page: "here", "utc", or
// "job" where a page knows the job's own.
import { choose, chosen, store } from "./store.js";

export const zoneChoice = store({ zone: chosen("zone", "here") });
export function chooseZone(zone) {
  choose("zone", zone);
  zoneChoice.set({ zone });
}

// The cluster's clock may differ from ours; what is "ago" is counted by its clock, once it is known.
export const clock = store({ tick: 0 });
export const now = () => Date.now();
let ticking = null;
export function startClock() {
  ticking ??= setInterval(() => document.hidden || clock.set(({ tick }) => ({ tick: tick + 1 })), 1_000);
}

// Asked for with every instant that is shown, and dear to find out; a traveller's changes within this.
const HERE_MS = 60_000;
let lives = { zone: "UTC", asked: Number.NEGATIVE_INFINITY };
export function here() {
  if (Math.abs(now() - lives.asked) > HERE_MS) lives = { zone: Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC", asked: now() };
  return lives.zone;
}

export function zoneOf(choice, jobZone) {
  if (choice === "utc") return "UTC";
  return choice === "job" && jobZone ? jobZone : here();
}

const formats = new Map();
function format(zone, withMs) {
  const key = `${zone} ${withMs}`;
  if (!formats.has(key)) {
    if (formats.size > 64) formats.clear();
    formats.set(key, new Intl.DateTimeFormat("en-GB", {
      timeZone: zone, weekday: "short", year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit",
      minute: "2-digit", second: "2-digit", hourCycle: "h23", timeZoneName: "longOffset",
      ...(withMs ? { fractionalSecondDigits: 3 } : {}),
    }));
  }
  return formats.get(key);
}

// The same instants are shown again each second, and in every plot.
const PARTS_MAX = 1_000;
const kept = new Map();
export function parts(at, zone, withMs = false) {
  const key = `${at} ${zone} ${withMs}`;
  if (!kept.has(key)) {
    if (kept.size >= PARTS_MAX) kept.clear();
    kept.set(key, Object.fromEntries(format(zone, withMs).formatToParts(at).map(({ type, value }) => [type, value])));
  }
  return kept.get(key);
}

const offsetOf = (part) => part.timeZoneName.replace("GMT", "") || "+00:00";

// "Fri 2026-11-20 09:00:00.120 +01:00"; what goes into a tooltip and on the clipboard.
export function exact(at, zone = zoneOf(zoneChoice.get().zone), withMs = true) {
  const part = parts(at, zone, withMs);
  const ms = withMs ? `.${part.fractionalSecond}` : "";
  return `${part.weekday} ${part.year}-${part.month}-${part.day} ${part.hour}:${part.minute}:${part.second}${ms} ${offsetOf(part)}`;
}

const MINUTE_MS = 60_000;

// "09:00:00" for today, else "Fri 27 Nov 09:00".
export function clockTime(at, zone = zoneOf(zoneChoice.get().zone)) {
  const part = parts(at, zone);
  const today = parts(Math.floor(now() / MINUTE_MS) * MINUTE_MS, zone);
  if (part.year === today.year && part.month === today.month && part.day === today.day) {
    return `${part.hour}:${part.minute}:${part.second}`;
  }
  const month = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"][Number(part.month) - 1];
  const year = part.year === today.year ? "" : ` ${part.year}`;
  return `${part.weekday} ${Number(part.day)} ${month}${year} ${part.hour}:${part.minute}`;
}

const DAY_MS = 86_400_000;
const AHEAD_DAYS = 400;

// When the clocks of a zone are changed next, and the time after, within some 13 months.
export function clockChanges(zone, from = now()) {
  const found = [];
  let last = offsetOf(parts(from, zone));
  for (let day = 1; day <= AHEAD_DAYS; day += 1) {
    let [low, high] = [from + (day - 1) * DAY_MS, from + day * DAY_MS];
    const offset = offsetOf(parts(high, zone));
    if (offset === last) continue;
    while (high - low > 1_000) {
      const middle = Math.floor((low + high) / 2);
      if (offsetOf(parts(middle, zone)) === last) low = middle;
      else high = middle;
    }
    found.push(Math.floor(high / 1_000) * 1_000);
    last = offset;
  }
  return found.slice(0, 2);
}

const STEPS = [[86_400_000 * 365, "y"], [86_400_000, "d"], [3_600_000, "h"], [60_000, "min"], [1_000, "s"]];

// "3 min", "2 h 5 min" (two parts with `fine`), for a length in milliseconds.
export function length(ms, fine = false) {
  const size = Math.abs(ms);
  if (size < 1) return size ? `${(size * 1000).toFixed(0)} µs` : "0 ms";
  if (size < 1_000) return `${Math.round(size)} ms`;
  if (size < 10_000) return `${(size / 1_000).toFixed(1).replace(".0", "")} s`;
  const at = STEPS.findIndex(([step]) => size >= step);
  const [step, unit] = STEPS[at];
  const whole = Math.floor(size / step);
  if (!fine || at === STEPS.length - 1) return `${whole} ${unit}`;
  const [small, smallUnit] = STEPS[at + 1];
  const rest = Math.floor((size - whole * step) / small);
  return rest ? `${whole} ${unit} ${rest} ${smallUnit}` : `${whole} ${unit}`;
}

export function relative(at) {
  const away = at - now();
  if (Math.abs(away) < 1_000) return "now";
  return away > 0 ? `in ${length(away)}` : `${length(away)} ago`;
}

// A Timestamp of the API as milliseconds; undefined where there is none.
export const ms = (text) => (text ? Date.parse(text) : undefined);

// A Duration of the API ("1.500s") as milliseconds, and back.
export const durationMs = (text) => (text ? Math.round(parseFloat(text) * 1_000) : undefined);
export const durationOf = (value) => `${value / 1_000}s`;

// What people type: "90", "90s", "5m", "1h30m", "2d"; undefined for what is none.
export function typedLength(text) {
  const trimmed = text.trim().replace(/\s+/g, "");
  if (/^\d+(\.\d+)?$/.test(trimmed)) return Number(trimmed) * 1_000;
  const unit = { ms: 1, s: 1_000, min: 60_000, m: 60_000, h: 3_600_000, d: 86_400_000 };
  let rest = trimmed;
  let sum = 0;
  while (rest) {
    const found = /^(\d+(?:\.\d+)?)(ms|s|min|m|h|d)/.exec(rest);
    if (!found) return undefined;
    sum += Number(found[1]) * unit[found[2]];
    rest = rest.slice(found[0].length);
  }
  return trimmed ? sum : undefined;
}

// A length as people type it: 5400000 is "1h30m".
export function lengthTyped(value) {
  if (value === undefined) return "";
  let rest = value;
  let text = "";
  for (const [unit, size] of [["d", 86_400_000], ["h", 3_600_000], ["m", 60_000], ["s", 1_000], ["ms", 1]]) {
    const whole = Math.floor(rest / size);
    if (whole) text += `${whole}${unit}`;
    rest -= whole * size;
  }
  return text || "0s";
}
