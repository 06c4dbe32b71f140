// Timeline: past and future of many jobs on one axis; a stretch of it is chosen by dragging.
import { post, read } from "../lib/api.js";
import { bands, columns, instant, SPANS, stretch, ticks, x } from "../lib/axis.js";
import { html, useMemo, useRef, useState } from "../lib/dom.js";
import { many, number } from "../lib/format.js";
import { useForecast } from "../lib/forecast.js";
import { useAsked, useEvery } from "../lib/load.js";
import { link, namespace, setParams, useParams } from "../lib/route.js";
import { can } from "../lib/session.js";
import { useStore } from "../lib/store.js";
import { clockTime, exact, length, parts, zoneChoice, zoneOf } from "../lib/time.js";
import { useTimeline } from "../lib/timeline.js";
import { Ask } from "../components/ask.js";
import { Button } from "../components/bits.js";
import { Choice } from "../components/fields.js";
import { Asked, Empty } from "../components/notes.js";
import { useWidth } from "../components/plot.js";
import { filterOf, Search } from "../components/search.js";
import { Shape, stateWord, tone } from "../components/state.js";

const ROW = 26;
const HEAD = 44;
const GRAIN = 4;
const LEAST = 3;
const DAY = 86_400_000;
const MINUTE_MS = 60_000;
// By tone: how grave, and how high its mark is, so that colour is not needed.
const GRAVITY = { bad: 5, warn: 4, off: 3, run: 2, wait: 1, ok: 0 };
const HIGH = { bad: 20, warn: 17, ok: 14, run: 14, off: 9, wait: 6 };
const gravity = (state) => GRAVITY[tone(state)];

function offsetOf(at, zone) {
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
function Axis({ range, width, now, zone, minutes }) {
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

function comingWords({ count, mark, last, state }, zone, paused) {
  const when = count > 1 ? `${number(count)} times from ${exact(mark.at, zone, false)} to ${exact(last.at, zone, false)}` : exact(mark.at, zone, false);
  return `${when}${mark.note ? ` · ${mark.note}` : ""}${state !== "PENDING" ? " · left out" : paused ? " · paused, so it does not happen" : ""}`;
}

function Row({ job, range, asked, width, now, zone }) {
  const { data, error } = useTimeline(job, asked);
  const { bars, dense } = useMemo(() => marksOf(data, range, width), [data, range, width]);
  const coming = useMemo(() => bands(columns((data?.coming ?? []).filter((one) => one.at >= now), range, width, GRAIN, () => 0)), [data, range, width, now]);
  const paused = job.status?.state === "STATE_PAUSED";
  const stretch = (column) => [instant(column * GRAIN, range, width), instant((column + 1) * GRAIN, range, width)];
  const runsOf = (column) => {
    const [from, to] = stretch(column).map((at) => new Date(at).toISOString());
    return link("/runs", { q: `job="${job.name}" AND state!=PENDING AND scheduled_time>=${from} AND scheduled_time<${to}` });
  };
  return html`<svg class="row" width=${width} height=${ROW} role="group" aria-label=${`${job.name}: ${number(data?.marks.length ?? 0)} marks`}>
    <${Lines} range=${range} width=${width} height=${ROW} now=${now} zone=${zone} />
    ${data ? "" : html`<text class=${error ? "bad" : ""} x="8" y="17">${error ? error.message : "asking…"}</text>`}
    ${bars.map((mark) => {
      const left = x(mark.at, range, width);
      const wide = Math.max(LEAST, x(mark.end ?? now, range, width) - left);
      const title = html`<title>${stateWord(mark.state)}${mark.count > 1 ? `, ${number(mark.count)} times` : ""} · ${exact(mark.at, zone)}${mark.end && mark.end > mark.at && !mark.entry ? ` · ${length(mark.end - mark.at)}` : ""}</title>`;
      const shape = html`<rect class="mark is-${tone(mark.state)}" ...${rect(left, wide, mark.state)}>${title}</rect>`;
      return mark.entry ? html`<g key=${mark.id}>${shape}</g>` : html`<a key=${mark.id} href=${link(["/runs", mark.id])} tabindex="-1" aria-label=${`${stateWord(mark.state)}, ${exact(mark.at, zone)}`}>${shape}</a>`;
    })}
    ${dense.map((one) => html`<a key=${one.column} href=${runsOf(one.column)} tabindex="-1" aria-label=${`${one.count} runs, the gravest ${stateWord(one.state)}`}><rect class="mark is-${tone(one.state)}" ...${rect(one.column * GRAIN, LEAST, one.state)}><title>${number(one.count)} from ${exact(stretch(one.column)[0], zone, false)}; the gravest: ${stateWord(one.state)}</title></rect></a>`)}
    ${coming.map((one) => html`<rect key=${`c${one.column}`} class="coming ${one.state === "PENDING" && !paused ? "" : "left-out"}" x=${one.column * GRAIN} y="8" width=${one.wide * GRAIN - 1} height="10" rx="1"><title>${comingWords(one, zone, paused)}</title></rect>`)}
    ${data?.onward && data.coming.at(-1).at < range.to ? html`<path class="coming onward" d=${`M${x(data.coming.at(-1).at, range, width)} 13H${width}`}><title>and so on</title></path>` : ""}
  </svg>`;
}

function useZone() {
  return zoneOf(useStore(zoneChoice, (one) => one.zone));
}

const ROWS = ["10", "20", "40"];
const FORECAST_EVERY_MS = 30_000;
const FORECAST_MAX_S = 86_400;
const DRAG_PX = 5;
const FIELDS = {
  name: { help: "name=mail* begins so", sign: ":" }, state: { values: ["ACTIVE", "PAUSED", "BROKEN"], help: "whether it fires" },
  queue: { help: "where its runs wait" }, "labels.": { help: "labels.team=billing", sign: "" }, last_state: { values: ["FAILED", "SUCCEEDED"], help: "how the last run ended" },
};
const LEGEND = [["SUCCEEDED", "succeeded"], ["RUNNING", "running"], ["FAILED", "failed"], ["RETRYING", "retrying"], ["SKIPPED", "skipped, missed"], ["CANCELLED", "cancelled"]];

// The jobs that are due next stand first; where there are too many to sort, by name.
async function askJobs(filter, pageSize, signal) {
  const query = { namespace: namespace(), filter, pageSize };
  try {
    return await read("/v1/jobs", { ...query, orderBy: "next_time" }, { signal });
  } catch (error) {
    if (error.reason !== "LIMIT_EXCEEDED") throw error;
    return { ...(await read("/v1/jobs", query, { signal })), byName: true };
  }
}

// "now" in steps of a pixel, so that nothing is drawn that would look the same.
function useNow(span, width) {
  const step = Math.max(1_000, SPANS[span] / Math.max(1, width));
  const [now, setNow] = useState(Date.now());
  useEvery(() => setNow(Date.now()), step);
  return now;
}

// Pulling over the rows chooses a stretch; a click that does not move is a click.
function useDrag(range, width, put) {
  const [drag, setDrag] = useState(null);
  const begun = useRef(null);
  const place = (event, frame) => Math.min(width, Math.max(0, event.clientX - frame.getBoundingClientRect().left));
  const on = {
    onPointerDown: (event) => {
      const frame = event.target.closest(".lane");
      if (!frame || event.button) return;
      begun.current = { at: place(event, frame), frame, job: frame.dataset.job ?? "" };
    },
    onPointerMove: (event) => {
      if (!begun.current) return;
      const to = place(event, begun.current.frame);
      if (Math.abs(to - begun.current.at) > DRAG_PX || drag) setDrag({ from: begun.current.at, to });
    },
    onPointerUp: () => {
      if (drag) put([drag.from, drag.to].sort((one, other) => one - other).map((at) => Math.round(instant(at, range, width))), begun.current?.job ?? "");
      begun.current = null;
      // The click that ends the pull is none.
      setTimeout(() => setDrag(null));
    },
    onPointerLeave: () => { begun.current = null; setDrag(null); },
    onClickCapture: (event) => { if (drag) { event.preventDefault(); event.stopPropagation(); } },
    onDragStart: (event) => event.preventDefault(),
  };
  return { drag, on };
}

function Backfill({ job, from, to, close }) {
  const body = { namespace: namespace(), fromTime: new Date(from).toISOString(), toTime: new Date(to).toISOString() };
  const path = `/v1/jobs/${encodeURIComponent(job)}:backfill`;
  const plan = useAsked(() => post(path, { ...body, validateOnly: true }), JSON.stringify([path, body]));
  const count = Number(plan.data?.planned ?? 0);
  return html`<${Ask} title=${`Backfill ${job}: ${plan.data ? many(count, "scheduled time") : "…"}`} yes=${plan.data ? `Run ${many(count, "scheduled time")}` : "Counting…"} ready=${count > 0} act=${() => post(path, body)} close=${close}>
    ${plan.error ? html`<p class="is-bad">${plan.error.message}</p>` : html`<p>Times of this stretch that have no run get one now, 60 a minute. ${plan.data ? `${number(plan.data.leftAlone)} are left alone: they ran, wait for their run, or are left out by a calendar or manually.` : ""}</p>`}
  </${Ask}>`;
}

function Chosen({ from, to, job, zone, names, minutes }) {
  const [asking, setAsking] = useState(false);
  const clear = () => setParams({ from: "", to: "", job: "" }, true);
  const [first, last] = [from, to].map((at) => new Date(at).toISOString());
  const within = `scheduled_time>=${first} AND scheduled_time<${last}`;
  const states = "(state=SUCCEEDED OR state=FAILED OR state=CANCELLED OR state=SKIPPED OR state=RUNNING OR state=RETRYING OR state=PENDING)";
  const past = from < Date.now();
  const due = minutes.filter((one) => Date.parse(one.startTime) + MINUTE_MS > from && Date.parse(one.startTime) < to).reduce((sum, one) => sum + Number(one.firings ?? 0), 0);
  return html`<section class="ask" aria-label="The chosen stretch"><h2>${exact(from, zone, false)} to ${exact(to, zone, false)} <span class="soft">${length(to - from, true)}</span></h2>
    ${due ? html`<p>About ${number(due)} are due in it, over all jobs and counted by whole minutes.</p>` : ""}
    <div class="bar"><${Choice} label="Of the job" value=${job} put=${(name) => setParams({ job: name }, true)} options=${[["", "all jobs"], ...names.map((name) => [name, name])]} /></div>
    ${asking ? html`<${Backfill} job=${job} from=${from} to=${Math.min(to, Date.now())} close=${() => setAsking(false)} />` : html`<div class="bar">
      ${past ? html`<a class="button main" href=${link("/runs", { q: `${job ? `job="${job}" AND ` : ""}${states} AND ${within}` })}>Show the runs</a>` : ""}
      ${to > Date.now() ? html`<a class="button ${past ? "" : "main"}" href=${link("/jobs", { q: `next_time>=${new Date(Math.max(from, Date.now())).toISOString()} AND next_time<${last}${job ? ` AND name="${job}"` : ""}`, order: "next_time" })}>Jobs whose next time lies in it</a>` : ""}
      <${Button} onClick=${() => setParams({ at: Math.round((from + to) / 2), span: nearestSpan(to - from), from: "", to: "", job: "" })}>Look closer</${Button}>
      ${past && job && can("JobService/BackfillJob") ? html`<${Button} onClick=${() => setAsking(true)}>Backfill this stretch…</${Button}>` : ""}
      <${Button} kind="plain" onClick=${clear}>Choose none</${Button}></div>`}
  </section>`;
}

const nearestSpan = (size) => Object.keys(SPANS).find((name) => SPANS[name] >= size) ?? "30d";

export function Page() {
  const { q = "", span: given, at = "", from = "", to = "", job = "", rows: wanted } = useParams();
  const span = given in SPANS ? given : "1h";
  const rows = ROWS.includes(wanted) ? wanted : ROWS[1];
  const [frame, width] = useWidth();
  const zone = useZone();
  const now = useNow(span, width);
  const range = useMemo(() => stretch(span, now, Number(at)), [span, now, at]);
  // Rows are asked for in steps of an eighth of what is seen, and a little over it on both sides.
  const grain = range.length / 8;
  const edges = [Math.floor(range.from / grain) * grain, Math.ceil(range.to / grain + 1) * grain];
  const asked = useMemo(() => ({ from: edges[0], to: edges[1] }), edges);
  const filter = filterOf(q);
  const jobs = useAsked((signal) => askJobs(filter, Number(rows), signal), JSON.stringify([namespace(), filter, rows]));
  const ahead = Math.min(FORECAST_MAX_S, Math.ceil((range.to - Date.now()) / 1_000));
  const forecast = useForecast(ahead, JSON.stringify([namespace(), span, at]), FORECAST_EVERY_MS);
  const drag = useDrag(range, width, (chosen, of) => setParams({ from: chosen[0], to: chosen[1], job: of }, true));
  const move = (part) => setParams({ at: Math.round((Number(at) || range.from + range.length / 2) + part * range.length) });
  const listed = jobs.data?.jobs ?? [];
  const shown = drag.drag ?? (from && to ? { from: x(Number(from), range, width), to: x(Number(to), range, width) } : null);
  const chosen = shown && html`<i class="chosen" ref=${(one) => { if (one) Object.assign(one.style, { left: `${Math.max(0, Math.min(shown.from, shown.to))}px`, width: `${Math.min(width, Math.max(shown.from, shown.to)) - Math.max(0, Math.min(shown.from, shown.to))}px` }); }}></i>`;
  return html`<div class="page">
    <div class="page-head"><h1>Timeline</h1><span class="grow"></span>
      <div class="chips" role="group" aria-label="How much is seen">${Object.keys(SPANS).map((name) => html`<button type="button" class="chip" aria-pressed=${span === name} onClick=${() => setParams({ span: name === "1h" ? "" : name })}>${name}</button>`)}</div>
      <div class="bar"><${Button} label="Earlier" title="Earlier" onClick=${() => move(-0.5)}>←</${Button}><${Button} pressed=${!at} onClick=${() => setParams({ at: "" })}>Now</${Button}><${Button} label="Later" title="Later" onClick=${() => move(0.5)}>→</${Button}></div></div>
    <div class="bar"><${Search} value=${q} put=${(text) => setParams({ q: text })} fields=${FIELDS} placeholder="words in the name, or queue=mail" label="Filter jobs" />
      <label class="bar">Jobs <select value=${rows} onChange=${(event) => setParams({ rows: event.target.value === ROWS[1] ? "" : event.target.value })}>${ROWS.map((count) => html`<option value=${count} selected=${count === rows}>${count}</option>`)}</select></label></div>
    ${from && to ? html`<${Chosen} key=${`${from} ${to}`} from=${Number(from)} to=${Number(to)} job=${job} zone=${zone} names=${listed.map((one) => one.name)} minutes=${forecast.data?.minutes ?? []} />` : ""}
    <div class="timeline" ...${drag.on}>
      <div class="time-row head"><span class="soft small">${jobs.data?.byName ? "by name" : "due next first"}</span><div class="lane" ref=${frame}>${width ? html`<${Axis} range=${range} width=${width} now=${now} zone=${zone} minutes=${forecast.data?.minutes ?? []} />` : ""}${chosen}</div></div>
      <${Asked} asked=${jobs} what="list jobs" rows=${8}>${() => (listed.length
        ? listed.map((one) => html`<div class="time-row" key=${one.name}><a class="key" href=${link(["/jobs", one.name])} title=${one.name}>${one.status?.state === "STATE_PAUSED" ? html`<${Shape} state="PAUSED" /> ` : ""}${one.name}</a><div class="lane" data-job=${one.name}>${width ? html`<${Row} job=${one} range=${range} asked=${asked} width=${width} now=${now} zone=${zone} />` : ""}${chosen}</div></div>`)
        : html`<${Empty} title=${filter ? "No job fits" : "No jobs yet"}>${filter ? html`<${Button} onClick=${() => setParams({ q: "" })}>Show all</${Button}>` : html`<p>Each job gets a row here: what ran, what was left out, and what is to come.</p>`}</${Empty}>`)}</${Asked}>
    </div>
    <div class="legend">${LEGEND.map(([state, word]) => html`<span><${Shape} state=${state} />${word}</span>`)}<span><svg width="8" height="12" aria-hidden="true"><rect class="coming" x="2" y="1" width="3" height="10" rx="1" /></svg>to come</span><span>pull over the rows to choose a stretch</span></div>
  </div>`;
}
