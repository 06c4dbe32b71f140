// Plots: lines over time, and bars by minute. All of them are SVG, in colours of the theme.
import { html, useEffect, useRef, useState } from "../lib/dom.js";
import { linePath, roundStep, ticks, under, x as xOf } from "../lib/axis.js";
import { clockTime } from "../lib/time.js";

const [LEFT, BELOW, ABOVE] = [44, 16, 6];
const LABEL_PX = 60;

// As wide as its place is.
export function useWidth() {
  const frame = useRef(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const look = () => frame.current && setWidth(Math.max(120, Math.floor(frame.current.clientWidth)));
    look();
    const watching = new ResizeObserver(look);
    watching.observe(frame.current);
    return () => watching.disconnect();
  }, []);
  return [frame, width];
}

// `series`: [{label, tone, fill?, dash?}], `data`: [seconds, values, …], `unit(value)` writes a value.
export function Plot({ series, data, unit, height = 150, label, whole = false }) {
  const [frame, width] = useWidth();
  const [near, setNear] = useState(null);
  const [times, ...lines] = data;
  const most = Math.max(0, ...lines.flat().filter((value) => value !== null && value !== undefined)) || 1;
  // Of what is counted there are no halves.
  const step = Math.max(whole ? 1 : 0, roundStep(most));
  const top = Math.max(step, most * 1.05);
  const range = { from: (times[0] ?? 0) * 1_000, to: (times.at(-1) ?? 1) * 1_000 };
  range.length = Math.max(1, range.to - range.from);
  const [wide, high] = [Math.max(1, width - LEFT - 4), height - BELOW - ABOVE];
  const place = (at) => LEFT + xOf(times[at] * 1_000, range, wide);
  const y = (value) => ABOVE + high - (value / top) * high;
  const levels = Array.from({ length: Math.floor(top / step) + 1 }, (_, at) => at * step);
  const look = (event) => {
    const at = event.clientX - frame.current.getBoundingClientRect().left - LEFT;
    const wanted = range.from / 1_000 + (at / wide) * (range.length / 1_000);
    let best = 0;
    times.forEach((time, index) => { if (Math.abs(time - wanted) < Math.abs(times[best] - wanted)) best = index; });
    setNear(times.length ? best : null);
  };
  const shown = near !== null && near < times.length ? near : null;
  const value = (line) => line[shown ?? line.length - 1];
  return html`<div class="plot" ref=${frame}>
    ${width ? html`<svg width=${width} height=${height} role="img" aria-label=${label} onPointerMove=${look} onPointerLeave=${() => setNear(null)}>
      ${levels.map((level) => html`<g key=${level}><path class="level" d=${`M${LEFT} ${y(level)}H${width - 4}`} /><text x=${LEFT - 6} y=${y(level) + 4} text-anchor="end">${unit(level)}</text></g>`)}
      ${times.length > 1 ? ticks(range, wide).at.map((at) => { const left = LEFT + xOf(at, range, wide); return left > LEFT + LABEL_PX / 2 && left < width - LABEL_PX / 2 ? html`<text key=${at} x=${left} y=${height - 3} text-anchor="middle">${clockTime(at).replace(/:00$/, "")}</text>` : ""; }) : ""}
      ${series.map((one, at) => {
        const path = linePath(lines[at] ?? [], place, y);
        return html`<g key=${one.label} class="is-${one.tone}">${one.fill && path ? html`<path class="under" d=${under(path, y(0))} />` : ""}<path class="over" d=${path} stroke-dasharray=${one.dash?.join(" ")} /></g>`;
      })}
      ${shown === null ? "" : html`<path class="near" d=${`M${place(shown)} ${ABOVE}V${ABOVE + high}`} />`}
    </svg>` : ""}
    ${series.length > 1 ? html`<p class="legend">${shown === null ? "" : html`<span>${clockTime(times[shown] * 1_000)}</span>`}${series.map((one, at) => html`<span class="is-${one.tone}"><svg width="12" height="8" aria-hidden="true"><path class="over" d="M0 4H12" stroke-dasharray=${one.dash?.join(" ")} /></svg>${one.label} ${value(lines[at] ?? []) === null || value(lines[at] ?? []) === undefined ? "–" : unit(value(lines[at]))}</span>`)}</p>` : ""}
  </div>`;
}

// Values as bars. `values`: [{value, title, over?, past?}], `limit`: a line at this value.
export function Bars({ values, limit, label, height = 64 }) {
  const most = Math.max(1, limit ?? 0, ...values.map((one) => one.value)) * 1.05;
  const width = 100 / Math.max(1, values.length);
  const y = (value) => height - (height * value) / most;
  return html`<svg class="bars" viewBox="0 0 100 ${height}" preserveAspectRatio="none" role="img" aria-label=${label}>
    ${values.map((one, at) => html`<rect key=${at} class="${one.over ? "over" : ""} ${one.past ? "past" : ""}" x=${at * width} width=${width * 0.8} y=${one.value ? Math.min(y(one.value), height - 2) : height} height=${one.value ? Math.max(2, height - y(one.value)) : 0}><title>${one.title}</title></rect>`)}
    ${limit ? html`<line x1="0" x2="100" y1=${y(limit)} y2=${y(limit)} vector-effect="non-scaling-stroke" />` : ""}
  </svg>`;
}
