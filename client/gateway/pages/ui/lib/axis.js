// A stretch of time on a line: what is asked for, where instants lie, where its marks stand; and
// lines of values over it.

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

// What may be chosen, in milliseconds, with the name that stands in the address.
export const SPANS = {
  "15m": 15 * MINUTE,
  "1h": HOUR,
  "6h": 6 * HOUR,
  "24h": DAY,
  "7d": 7 * DAY,
  "30d": 30 * DAY,
};
const STEPS = [
  SECOND, 5 * SECOND, 15 * SECOND, 30 * SECOND,
  MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE,
  HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY,
];
const TICK_PX = 80;

// Two thirds behind `now`, one third ahead; or around `at`, where one has moved away.
export function stretch(span, now, at) {
  const length = SPANS[span] ?? SPANS["1h"];
  const from = at ? at - length / 2 : now - (length * 2) / 3;
  return { from, to: from + length, length };
}

export function x(instant, { from, length }, width) {
  return ((instant - from) / length) * width;
}

export function instant(place, { from, length }, width) {
  return from + (place / width) * length;
}

// Even marks, at least some 80 px apart, on round times of a zone that is `offset` ms off UTC.
export function ticks({ from, to, length }, width, offset = 0) {
  const least = (length / Math.max(1, width)) * TICK_PX;
  const step = STEPS.find((one) => one >= least) ?? STEPS.at(-1);
  const found = [];
  const first = Math.ceil((from + offset) / step) * step - offset;
  for (let at = first; at <= to && found.length < 200; at += step) found.push(at);
  return { step, at: found };
}

// Many marks on few pixels: by column, with the gravest of each and how many there are.
export function columns(marks, range, width, grain, gravity) {
  const found = new Map();
  for (const mark of marks) {
    if (mark.at < range.from || mark.at >= range.to) continue;
    const column = Math.floor(x(mark.at, range, width) / grain);
    const before = found.get(column);
    if (!before) found.set(column, { column, state: mark.state, count: mark.count ?? 1, mark });
    else {
      before.count += mark.count ?? 1;
      if (gravity(mark.state) > gravity(before.state)) {
        before.state = mark.state;
        before.mark = mark;
      }
    }
  }
  return [...found.values()].sort((one, other) => one.column - other.column);
}

// Columns as they are where they stand apart, else as stretches: {column, wide, count, state, mark,
// last}. What lies closer than some pixels would be drawn as a pattern that is not there.
export function bands(found, apart = 3) {
  const spread = found.length > 1 ? (found.at(-1).column - found[0].column) / (found.length - 1) : Infinity;
  const gap = spread < apart ? apart + 1 : 0;
  const made = [];
  for (const one of found) {
    const before = made.at(-1);
    const near = before && before.state === one.state && one.column - before.column - before.wide < gap;
    if (near) Object.assign(before, { wide: one.column - before.column + 1, count: before.count + one.count, last: one.mark });
    else made.push({ ...one, wide: 1, last: one.mark });
  }
  return made;
}

// 1, 2 or 5 of some power of ten, so that `most` is not above two of them.
export function roundStep(most) {
  const power = 10 ** Math.floor(Math.log10(Math.max(most, 1e-9)));
  return [0.5, 1, 2, 5].find((one) => one * power * 2 >= most) * power;
}

// A path through the values that are known; it breaks where one is missing.
export function linePath(values, x, y) {
  const known = (value) => value !== null && value !== undefined;
  // One that stands alone has no length, and is drawn as a dot by its round ends.
  const alone = (at) => !known(values[at - 1]) && !known(values[at + 1]);
  return values.map((value, at) => (known(value) ? `${known(values[at - 1]) ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}${alone(at) ? "h0" : ""}` : "")).join("");
}

// What lies between such a path and `ground`.
export const under = (path, ground) => path.split("M").filter(Boolean).map((piece) => {
  const points = piece.split("L");
  return `M${points[0].split(" ")[0]} ${ground}L${piece}L${points.at(-1).split(" ")[0]} ${ground}Z`;
}).join("");
