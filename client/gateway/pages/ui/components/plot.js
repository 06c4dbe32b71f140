// Plots: lines over time (uPlot, fetched when the first one is drawn), bars by minute, a spark.
import { html, useEffect, useRef } from "../lib/dom.js";

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
let loading = null;
function library() {
  loading ??= new Promise((done, fail) => {
    const sheet = document.createElement("link");
    sheet.rel = "stylesheet";
    sheet.href = new URL("../vendor/uplot.css", import.meta.url);
    document.head.append(sheet);
    import("../vendor/uplot.js").then((part) => done(part.default), fail);
  });
  return loading;
}

// `series`: [{label, tone, fill?}], `data`: [seconds, values, …], `unit(value)` writes a value.
export function Plot({ series, data, unit, height = 150, label, range }) {
  const frame = useRef(null);
  const held = useRef({ plot: null, data });
  held.current.data = data;
  const names = series.map((one) => one.label).join();

  useEffect(() => {
    let gone = false;
    const draw = async () => {
      const UPlot = await library();
      if (gone || !frame.current) return;
      held.current.plot?.destroy();
      const axis = { stroke: colour("soft"), font: "11px system-ui", grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line"), width: 1 } };
      held.current.plot = new UPlot({
        width: frame.current.clientWidth, height, padding: [8, 8, 0, 0], legend: { show: series.length > 1 }, cursor: { drag: { setScale: false } },
        scales: { y: { range: range ?? ((_, low, high) => [Math.min(0, low ?? 0), high > 0 ? high * 1.1 : 1]) } },
        axes: [{ ...axis, space: 70 }, { ...axis, size: 62, values: (_, ticks) => ticks.map((tick) => unit(tick)) }],
        series: [{ label: "time" }, ...series.map((one) => ({
          label: one.label, stroke: colour(one.tone), width: 1.5, points: { show: false }, fill: one.fill ? `${colour(one.tone)}22` : undefined,
          dash: one.dash, value: (_, value) => (value === null || value === undefined ? "–" : unit(value)), spanGaps: false,
        }))],
      }, held.current.data, frame.current);
    };
    draw();
    const size = new ResizeObserver(() => frame.current && held.current.plot?.setSize({ width: frame.current.clientWidth, height }));
    size.observe(frame.current);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", draw);
    addEventListener("theme", draw);
    return () => {
      gone = true;
      size.disconnect();
      dark.removeEventListener("change", draw);
      removeEventListener("theme", draw);
      held.current.plot?.destroy();
      held.current.plot = null;
    };
  }, [names, height]);
  useEffect(() => held.current.plot?.setData(data), [data]);
  return html`<div class="plot" ref=${frame} role="img" aria-label=${label}></div>`;
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

export function Spark({ values, label }) {
  const known = values.filter((value) => value !== null && value !== undefined);
  const most = Math.max(...known, 0) || 1;
  const points = values.map((value, at) => (value === null || value === undefined ? null : [(100 * at) / Math.max(1, values.length - 1), 30 - (28 * value) / most]));
  const path = points.map((point, at) => (point ? `${at && points[at - 1] ? "L" : "M"}${point[0].toFixed(2)} ${point[1].toFixed(2)}` : "")).join("");
  return html`<svg class="spark" viewBox="0 0 100 32" preserveAspectRatio="none" role="img" aria-label=${label}><path d=${path} /></svg>`;
}
