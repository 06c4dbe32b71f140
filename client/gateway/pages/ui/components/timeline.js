// One axis for many jobs: what was, left of now; what is to come, right of it.
import { html, useMemo } from "../lib/dom.js";
import { bands, columns, instant, ticks, x } from "../lib/axis.js";
import { number } from "../lib/format.js";
import { link } from "../lib/route.js";
import { useTimeline } from "../lib/timeline.js";
import { clockTime, exact, length, parts, zoneChoice, zoneOf } from "../lib/time.js";
import { useStore } from "../lib/store.js";
import { stateWord, tone } from "./state.js";

const ROW = 26;
const HEAD = 44;
const GRAIN = 4;
const LEAST = 3;
const DAY = 86_400_000;
// By tone: how grave, and how high its mark is, so that colour is not needed.
const GRAVITY = { bad: 5, warn: 4, off: 3, run: 2, wait: 1, ok: 0 };
const HIGH = { bad: 20, warn: 17, ok: 14, run: 14, off: 9, wait: 6 };
const gravity = (state) => GRAVITY[tone(state)];

export function offsetOf(at, zone) {
  const found = /([+-])(\d\d):(\d\d)/.exec(parts(at, zone).timeZoneName);
  return found ? (found[1] === "-" ? -1 : 1) * (Number(found[2]) * 60 + Number(found[3])) * 60_000 : 0;
}

function Lines({ range, width, height, now, zone, named }) {
  const { step, at } = ticks(range, width, offsetOf(range.from, zone));
  const nowAt = x(now, range, width);
  return html`<g class="lines-of-time">
    ${at.map((one) => html`<g key=${one}><path d="M${x(one, range, width)} ${named ? HEAD - 8 : 0}V${height}" />${named && x(one, range, width) > 18 && x(one, range, width) < width - 18 ? html`<text x=${x(one, range, width)} y=${HEAD - 12} text-anchor="middle">${tickWord(one, step, zone)}</text>` : ""}</g>`)}
    ${nowAt > 0 && nowAt < width ? html`<path class="now" d="M${nowAt} ${named ? 14 : 0}V${height}" />${named ? html`<text class="now" x=${Math.min(Math.max(nowAt, 16), width - 16)} y="11" text-anchor="middle">now</text>` : ""}` : ""}
  </g>`;
}

function tickWord(at, step, zone) {
  const part = parts(at, zone);
  if (step >= DAY || (part.hour === "00" && part.minute === "00" && part.second === "00")) return `${part.weekday} ${part.day}`;
  return step < 60_000 ? `${part.hour}:${part.minute}:${part.second}` : `${part.hour}:${part.minute}`;
}

// The axis, with how much is due in each minute ahead, over all jobs.
export function Axis({ range, width, now, zone, minutes }) {
  const most = Math.max(1, ...minutes.map((one) => Number(one.firings ?? 0)));
  const minuteWide = Math.max(1, (60_000 / range.length) * width);
  return html`<svg class="axis" width=${width} height=${HEAD} role="img" aria-label=${`From ${exact(range.from, zone, false)} to ${exact(range.to, zone, false)}`}>
    <${Lines} range=${range} width=${width} height=${HEAD} now=${now} zone=${zone} named />
    ${minutes.map((one) => {
      const at = Date.parse(one.startTime);
      const high = Math.round((8 * Number(one.firings ?? 0)) / most);
      return high && at < range.to && at + 60_000 > range.from ? html`<rect key=${at} class="due" x=${x(at, range, width)} y=${HEAD - high} width=${minuteWide} height=${high}><title>${number(one.firings)} due in the minute from ${clockTime(at, zone)}, at most ${number(one.peak)} in one second</title></rect>` : "";
    })}
  </svg>`;
}

function marksOf(data, range, width) {
  if (!data) return { bars: [], dense: [] };
  const inside = data.marks.filter((mark) => mark.at < range.to && (mark.end ?? range.to) >= range.from);
  if (inside.length > width / (2 * GRAIN)) return { bars: [], dense: columns(inside, range, width, GRAIN, gravity) };
  return { bars: inside, dense: [] };
}

const rect = (left, wide, state) => ({ x: left, width: wide, y: (ROW - HIGH[tone(state)]) / 2, height: HIGH[tone(state)], rx: 1 });

function comingWords({ count, mark, last, state }, zone) {
  const when = count > 1 ? `${number(count)} times from ${exact(mark.at, zone, false)} to ${exact(last.at, zone, false)}` : exact(mark.at, zone, false);
  return `${when}${mark.note ? ` · ${mark.note}` : ""}${state === "PENDING" ? "" : " · left out"}`;
}

export function Row({ job, range, asked, width, now, zone }) {
  const { data, error } = useTimeline(job, asked);
  const { bars, dense } = useMemo(() => marksOf(data, range, width), [data, range, width]);
  const coming = useMemo(() => bands(columns((data?.coming ?? []).filter((one) => one.at >= now), range, width, GRAIN, () => 0)), [data, range, width, now]);
  const stretch = (column) => [instant(column * GRAIN, range, width), instant((column + 1) * GRAIN, range, width)];
  const runsOf = (column) => {
    const [from, to] = stretch(column).map((at) => new Date(at).toISOString());
    return link("/runs", { q: `job="${job.name}" AND state!=PENDING AND scheduled_time>=${from} AND scheduled_time<${to}` });
  };
  return html`<svg class="row" width=${width} height=${ROW} role="group" aria-label=${`${job.name}: ${number(data?.marks.length ?? 0)} marks`}>
    <${Lines} range=${range} width=${width} height=${ROW} now=${now} zone=${zone} />
    ${error && !data ? html`<text class="bad" x="8" y="17">${error.message}</text>` : ""}
    ${bars.map((mark) => {
      const left = x(mark.at, range, width);
      const wide = Math.max(LEAST, x(mark.end ?? now, range, width) - left);
      const title = html`<title>${stateWord(mark.state)}${mark.count > 1 ? `, ${number(mark.count)} times` : ""} · ${exact(mark.at, zone)}${mark.end && mark.end > mark.at && !mark.entry ? ` · ${length(mark.end - mark.at)}` : ""}</title>`;
      const shape = html`<rect class="mark is-${tone(mark.state)}" ...${rect(left, wide, mark.state)}>${title}</rect>`;
      return mark.entry ? html`<g key=${mark.id}>${shape}</g>` : html`<a key=${mark.id} href=${link(["/runs", mark.id])} tabindex="-1" aria-label=${`${stateWord(mark.state)}, ${exact(mark.at, zone)}`}>${shape}</a>`;
    })}
    ${dense.map((one) => html`<a key=${one.column} href=${runsOf(one.column)} tabindex="-1" aria-label=${`${one.count} runs, the gravest ${stateWord(one.state)}`}><rect class="mark is-${tone(one.state)}" ...${rect(one.column * GRAIN, LEAST, one.state)}><title>${number(one.count)} from ${exact(stretch(one.column)[0], zone, false)}; the gravest: ${stateWord(one.state)}</title></rect></a>`)}
    ${coming.map((one) => html`<rect key=${`c${one.column}`} class="coming ${one.state === "PENDING" ? "" : "left-out"}" x=${one.column * GRAIN} y="8" width=${one.wide * GRAIN - 1} height="10" rx="1"><title>${comingWords(one, zone)}</title></rect>`)}
    ${data?.onward && data.coming.at(-1).at < range.to ? html`<path class="coming onward" d=${`M${x(data.coming.at(-1).at, range, width)} 13H${width}`}><title>and so on</title></path>` : ""}
  </svg>`;
}

export function useZone() {
  return zoneOf(useStore(zoneChoice, (one) => one.zone));
}
