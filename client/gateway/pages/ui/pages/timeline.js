// Timeline: past and future of many jobs on one axis; a stretch of it is chosen by dragging.
import { SPANS, instant, stretch, x } from "../lib/axis.js";
import { post, read } from "../lib/api.js";
import { html, useEffect, useMemo, useRef, useState } from "../lib/dom.js";
import { many, number } from "../lib/format.js";
import { useAsked, usePolled } from "../lib/load.js";
import { link, namespace, setParams, useParams } from "../lib/route.js";
import { can } from "../lib/session.js";
import { exact, length } from "../lib/time.js";
import { Ask } from "../components/ask.js";
import { Button } from "../components/bits.js";
import { Choice } from "../components/fields.js";
import { Asked, Empty } from "../components/notes.js";
import { useWidth } from "../components/plot.js";
import { filterOf, Search } from "../components/search.js";
import { Shape } from "../components/state.js";
import { Axis, Row, useZone } from "../components/timeline.js";

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
  useEffect(() => {
    const timer = setInterval(() => document.hidden || setNow(Date.now()), step);
    return () => clearInterval(timer);
  }, [step]);
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

function Chosen({ from, to, job, zone, names }) {
  const [asking, setAsking] = useState(false);
  const clear = () => setParams({ from: "", to: "", job: "" }, true);
  const [first, last] = [from, to].map((at) => new Date(at).toISOString());
  const within = `scheduled_time>=${first} AND scheduled_time<${last}`;
  const states = "(state=SUCCEEDED OR state=FAILED OR state=CANCELLED OR state=SKIPPED OR state=RUNNING OR state=RETRYING OR state=PENDING)";
  const past = from < Date.now();
  return html`<section class="ask" aria-label="The chosen stretch"><h2>${exact(from, zone, false)} to ${exact(to, zone, false)} <span class="soft">${length(to - from, true)}</span></h2>
    <div class="bar"><${Choice} label="Of the job" value=${job} put=${(name) => setParams({ job: name }, true)} options=${[["", "all jobs"], ...names.map((name) => [name, name])]} /></div>
    ${asking ? html`<${Backfill} job=${job} from=${from} to=${Math.min(to, Date.now())} close=${() => setAsking(false)} />` : html`<div class="bar">
      ${past ? html`<a class="button main" href=${link("/runs", { q: `${job ? `job="${job}" AND ` : ""}${states} AND ${within}` })}>Show the runs</a>` : ""}
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
  const ahead = Math.min(FORECAST_MAX_S, Math.max(60, Math.ceil((range.to - Date.now()) / 1_000)));
  const forecast = usePolled((signal) => (range.to > Date.now() ? read("/v1/forecast", { namespace: namespace(), ahead: `${ahead}s` }, { signal }) : {}), JSON.stringify([namespace(), span, at]), FORECAST_EVERY_MS);
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
    ${from && to ? html`<${Chosen} key=${`${from} ${to}`} from=${Number(from)} to=${Number(to)} job=${job} zone=${zone} names=${listed.map((one) => one.name)} />` : ""}
    <div class="timeline" ...${drag.on}>
      <div class="time-row head"><span class="soft small">${jobs.data?.byName ? "by name" : "due next first"}</span><div class="lane" ref=${frame}>${width ? html`<${Axis} range=${range} width=${width} now=${now} zone=${zone} minutes=${forecast.data?.minutes ?? []} />` : ""}${chosen}</div></div>
      <${Asked} asked=${jobs} what="list jobs" rows=${8}>${() => (listed.length
        ? listed.map((one) => html`<div class="time-row" key=${one.name}><a class="key" href=${link(["/jobs", one.name])} title=${one.name}>${one.name}</a><div class="lane" data-job=${one.name}>${width ? html`<${Row} job=${one} range=${range} asked=${asked} width=${width} now=${now} zone=${zone} />` : ""}${chosen}</div></div>`)
        : html`<${Empty} title=${filter ? "No job fits" : "No jobs yet"}>${filter ? html`<${Button} onClick=${() => setParams({ q: "" })}>Show all</${Button}>` : html`<p>Each job gets a row here: what ran, what was left out, and what is to come.</p>`}</${Empty}>`)}</${Asked}>
    </div>
    <div class="legend">${LEGEND.map(([state, word]) => html`<span><${Shape} state=${state} />${word}</span>`)}<span><svg width="8" height="12" aria-hidden="true"><rect class="coming" x="2" y="1" width="3" height="10" rx="1" /></svg>to come</span><span>pull over the rows to choose a stretch</span></div>
  </div>`;
}
