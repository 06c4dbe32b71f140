// Is all well? Rates, lateness, what waits and who works, the coming hour, what needs a look, what
// happened last.
import { read } from "../lib/api.js";
import { html, useEffect } from "../lib/dom.js";
import { columnsOf, latest, SPANS, thinned, troubles, useFigures, useHappened } from "../lib/overview.js";
import { many, number, plain, words } from "../lib/format.js";
import { pulse } from "../lib/live.js";
import { useForecast } from "../lib/forecast.js";
import { useAsked, useLiveAsked, usePolled } from "../lib/load.js";
import { link, namespace, setParams, useParams } from "../lib/route.js";
import { can, session, whenKnown } from "../lib/session.js";
import { useStore } from "../lib/store.js";
import { clockTime, exact, length, ms } from "../lib/time.js";
import { Length, Time } from "../components/bits.js";
import { Asked } from "../components/notes.js";
import { Bars, Plot } from "../components/plot.js";
import { LastDay } from "../components/proof.js";
import { Shape, State } from "../components/state.js";

const HAPPENED = 14;
// A plot of a card has room for so many.
const POINTS = 120;
// What is due is counted by a node now and then, and not for this page; see useForecast.
const AHEAD_MS = 60_000;
const OLD_MS = 90_000;
const TROUBLES_MS = 20_000;
const OWN_MS = 5_000;
const NONE = [];
const CONCERNS = new Set(["EVENT_KIND_RUN_FAILED", "EVENT_KIND_JOB_BROKEN", "EVENT_KIND_JOB_REPAIRED", "EVENT_KIND_ALERT_RAISED", "EVENT_KIND_ALERT_CLEARED", "EVENT_KIND_RUN_REQUEUED"]);

const rate = (value) => (value >= 100 ? number(Math.round(value)) : value >= 10 ? value.toFixed(0) : value.toFixed(1));
const shortRate = (value) => (value >= 1_000 ? `${(value / 1_000).toFixed(value >= 10_000 ? 0 : 1)} k/s` : `${Number(value.toFixed(1))}/s`);
const count = (value) => (value >= 1_000_000 ? `${(value / 1e6).toFixed(1)} M` : value >= 1_000 ? `${Number((value / 1e3).toFixed(1))} k` : String(Math.round(value)));

function Card({ title, figure, unit, more, children }) {
  return html`<section class="card" aria-label=${title}><header><h2>${title}</h2></header>
    <p class="figure">${figure} <small>${unit}</small></p><p class="soft">${more}</p>${children}</section>`;
}

const Coming = ({ why }) => html`<div class="cards">${["Firing", "Lateness", "Waiting", "Workers"].map((title) => html`<${Card} key=${title} title=${title} figure="–" unit="" more=${why}><div class="plot"></div></${Card}>`)}</div>`;

function Figures() {
  const { span = "" } = useParams();
  const { size, drawn: whole } = SPANS[span] ?? SPANS[""];
  const { figures, error } = useFigures(span);
  const last = latest(figures, size);
  const stands = useStore(pulse, ({ cluster }) => Boolean(cluster) && !cluster.leader);
  const drawn = thinned(figures, size, whole, POINTS);
  const of = (...names) => columnsOf(drawn.figures, names, drawn.size);
  const none = error ? error.message : "asking…";
  if (!last) return html`<${Coming} why=${none} />`;
  const ready = last.high + last.medium + last.low;
  return html`
    ${error ? html`<p class="is-warn small">No new figures: ${error.message} These end at ${clockTime(last.time)}.</p>` : ""}
    <div class="cards">
      <${Card} title="Firing" figure=${stands ? "–" : rate(last.fired)} unit=${stands ? "" : "a second"} more=${stands ? "nothing, since no node leads" : `${rate(last.started)} started, ${rate(last.failed)} failed`}>
        <${Plot} label="Rates" height=${110} unit=${shortRate} data=${of("fired", "ended", "failed")} series=${[{ label: "fired", tone: "run", fill: true }, { label: "ended", tone: "ok" }, { label: "failed", tone: "bad" }]} /></${Card}>
      <${Card} title="Lateness" figure=${last.p50 === null ? "–" : length(last.p50)} unit="median" more=${last.p99 === null ? "nothing started lately" : `${length(last.p99)} for 99 of 100`}>
        <${Plot} label="Lateness" height=${110} unit=${(value) => length(value)} data=${of("p50", "p99")} series=${[{ label: "median", tone: "run" }, { label: "99 of 100", tone: "warn" }]} /></${Card}>
      <${Card} title="Waiting" figure=${number(ready)} unit=${ready === 1 ? "run" : "runs"} more=${ready ? `the oldest for ${length(last.oldest)}` : "nothing waits for a worker"}>
        <${Plot} whole label="Ready runs by priority" height=${110} unit=${count} data=${of("high", "medium", "low")} series=${[{ label: "high", tone: "bad" }, { label: "medium", tone: "run", fill: true }, { label: "low", tone: "wait" }]} /></${Card}>
      <${Card} title="Workers" figure=${number(last.workers)} unit=${last.workers === 1 ? "worker" : "workers"} more=${last.slots ? `${number(last.busy)} of ${number(last.slots)} slots busy, ${Math.round((100 * last.busy) / last.slots)} %` : "no slots: nothing can run"}>
        <${Plot} whole label="Slots" height=${110} unit=${count} data=${of("busy", "slots")} series=${[{ label: "busy", tone: "run", fill: true }, { label: "slots", tone: "wait", dash: [4, 3] }]} /></${Card}>
    </div>`;
}

// For whoever may see one namespace: what is in that, since the figures are of all.
function Own() {
  const asked = usePolled((signal) => read(`/v1/namespaces/${encodeURIComponent(namespace() || "default")}`, {}, { signal }), namespace(), OWN_MS);
  return html`<${Asked} asked=${asked} what="namespace" rows=${2}>${({ usage = {}, quota = {} }) => html`<div class="cards">${[
    ["Jobs", "jobs", "/jobs"], ["Under way", "liveRuns", "/runs"], ["Leased", "leases", "/workers"], ["Dead letters", "deadLetters", "/dead"],
  ].map(([title, name, path]) => html`<${Card} key=${name} title=${title} figure=${html`<a href=${link(path)}>${number(usage[name])}</a>`} unit=${Number(quota[name]) ? `of ${number(quota[name])}` : ""} more="" />`)}</div>`}</${Asked}>`;
}

const instant = (at) => new Date(at).toISOString();
const dueIn = (minute) => link("/jobs", { q: `next_time>=${instant(minute)} AND next_time<${instant(minute + 60_000)}` });

function Ahead() {
  const asked = useForecast(3_600, namespace(), AHEAD_MS);
  return html`<section class="card" aria-label="Next hour"><${Asked} asked=${asked} what="forecast" rows=${2}>${(found) => {
    const minutes = found.minutes ?? [];
    const capacity = Number(found.capacity ?? 0);
    const values = minutes.map((one) => ({
      value: Number(one.firings ?? 0), over: capacity > 0 && Number(one.firings ?? 0) > capacity,
      title: `${clockTime(ms(one.startTime))}: ${number(one.firings)} due${Number(one.peak) > 1 ? `, at most ${number(one.peak)} in one second` : ""}`,
    }));
    const worst = minutes.reduce((most, one) => (Number(one.firings ?? 0) > Number(most?.firings ?? 0) ? one : most), null);
    const over = values.filter((one) => one.over).length;
    const all = values.reduce((sum, one) => sum + one.value, 0);
    const until = clockTime(ms(found.completeTime)).slice(0, 5);
    const old = Date.now() - ms(found.countedTime);
    return html`<header><h2>Next hour</h2><span>${found.partial ? "more than " : ""}${number(all)} due, by minute${found.partial ? `; counted up to ${until}` : old > OLD_MS ? html`, counted <${Time} at=${found.countedTime} />` : ""}</span><span class="grow"></span>
        <span class=${over ? "is-bad" : ""}>${over ? `${many(over, "minute")} above what ${number(found.slots)} slots can carry (about ${number(capacity)} a minute)` : capacity ? `slots can carry about ${number(capacity)} a minute` : Number(found.slots ?? 0) ? "what slots can carry is not known yet" : "no worker is connected"}</span></header>
      <${Bars} values=${values} limit=${over ? capacity : undefined} label="Firings by minute" />
      <div class="bar small soft"><span>${minutes.length ? clockTime(ms(minutes[0].startTime)).slice(0, 5) : ""}</span><span class="grow"></span>
        ${worst && Number(worst.firings) ? html`<a href=${dueIn(ms(worst.startTime))} title="The jobs whose next time lies in that minute">most at ${clockTime(ms(worst.startTime)).slice(0, 5)}: ${number(worst.firings)}${Number(worst.peak) > 1 ? `, ${number(worst.peak)} in one second` : ""}</a><span class="grow"></span>` : ""}
        <span>${minutes.length ? clockTime(ms(minutes.at(-1).startTime)).slice(0, 5) : ""}</span></div>`;
  }}</${Asked}></section>`;
}

function Trouble({ one }) {
  return html`<li><${Shape} state=${one.state} /><a class="grow" href=${one.href} title=${one.text}><strong>${one.title}</strong> <span class="soft">${one.text}</span></a><span class="soft nowrap">${one.at ? html`<${Time} at=${one.at} />` : ""}</span></li>`;
}

const TITLES = { RUN_RETRYING: "RETRYING", RUN_SUCCEEDED: "SUCCEEDED", RUN_FAILED: "FAILED", RUN_CANCELLED: "CANCELLED", RUN_SKIPPED: "SKIPPED", RUN_REQUEUED: "PENDING", ALERT_RAISED: "FIRING", ALERT_CLEARED: "QUIET", JOB_PAUSED: "PAUSED", JOB_RESUMED: "ACTIVE", JOB_BROKEN: "BROKEN", JOB_REPAIRED: "ACTIVE", JOB_FINISHED: "FINISHED", FLOW_STUCK: "WARNING" };

function Event({ event }) {
  const kind = plain(event.kind);
  const { run, ledger } = event;
  const state = ledger ? ledger.outcome : run?.warning ? "WARNING" : TITLES[kind] ?? "PENDING";
  const says = ledger ? (Number(ledger.count) > 1 ? `${number(ledger.count)} times` : "") : run ? (run.error?.kind ? run.error.kind : run.warning ? run.warning : kind === "RUN_RETRYING" ? `next is try ${Number(run.attempt ?? 0) + 1}` : "") : "";
  const name = event.job || event.alert || event.queue?.name || event.flow || event.calendar || "";
  const href = run ? link(["/runs", run.id]) : event.job ? link(["/jobs", event.job]) : undefined;
  return html`<li><span class="soft mono" title=${exact(ms(event.time))}>${clockTime(ms(event.time)).slice(-8)}</span><${State} state=${state} word=${run || ledger ? undefined : words(event.kind).replace(/^(job|queue|alert|flow) /, "")} />
    <a class="grow" href=${href} title=${event.message}><strong>${name}</strong> <span class="soft">${says}</span></a>
    <span class="soft nowrap">${run?.startTime && run?.endTime ? html`<${Length} from=${run.startTime} to=${run.endTime} />` : ""}</span></li>`;
}

function Headline({ found }) {
  const { cluster, unreachable } = useStore(pulse);
  const problems = cluster?.problems ?? [];
  const bad = unreachable || (cluster && !cluster.leader);
  const count = (found ?? []).reduce((sum, one) => sum + (one.count ?? 1), problems.length);
  const title = bad ? "The cluster cannot work now" : count ? `${many(count, "thing")} ${count === 1 ? "needs" : "need"} a look` : found ? "All is well" : "Looking…";
  return html`<h1><${Shape} state=${bad ? "FAILED" : count ? "WARNING" : found ? "SUCCEEDED" : "PENDING"} /> ${title}</h1>`;
}

export function Page() {
  const { span = "" } = useParams();
  const caller = useStore(session, (one) => one.caller);
  const asked = useLiveAsked(async (signal) => {
    await whenKnown();
    return { list: await troubles(signal), ageMs: null };
  }, namespace(), (event) => CONCERNS.has(event.kind));
  // Some of what is wrong comes without an event: that something waits too long.
  useEffect(() => {
    const timer = setInterval(() => document.hidden || asked.soon(), TROUBLES_MS);
    return () => clearInterval(timer);
  }, [namespace()]);
  const problems = useStore(pulse, (one) => one.cluster?.problems) ?? NONE;
  const { events, many: tooMany, known } = useHappened(HAPPENED);
  const jobs = useAsked((signal) => read("/v1/jobs", { namespace: namespace(), pageSize: 1 }, { signal }), namespace());
  return html`<div class="page">
    <div class="page-head"><${Headline} found=${asked.data?.list} /><span class="grow"></span>
      <div class="chips" role="group" aria-label="Stretch of time">${Object.entries(SPANS).map(([name, one]) => html`<button type="button" class="chip" aria-pressed=${span === name} onClick=${() => setParams({ span: name }, true)}>${one.word}</button>`)}</div></div>
    ${!caller ? html`<${Coming} why="asking…" />` : can("ClusterService/GetFigures", "") ? html`<${Figures} />` : html`<${Own} />`}
    ${jobs.data && !(jobs.data.jobs ?? []).length ? html`<div class="note"><h2>No jobs yet</h2><p>Make the first one here, or by <code>raftsched job create report --cron "0 9 * * *" --handler hello</code>.</p><a class="button main" href=${link("/new-job")}>New job</a></div>` : ""}
    <${Ahead} />
    ${caller && can("JobService/AuditJobs") ? html`<${LastDay} key=${namespace()} />` : ""}
    <div class="columns">
      <section class="card" aria-label="Needs a look"><header><h2>Needs a look</h2></header>
        <${Asked} asked=${asked} what="list" rows=${4}>${({ list }) => (list.length || problems.length ? html`<ul class="lines">${problems.map((text) => html`<li key=${text}><${Shape} state="WARNING" /><a class="grow" href=${link("/cluster")}>${text}</a></li>`)}${list.map((one, at) => html`<${Trouble} key=${at} one=${one} />`)}</ul>` : html`<p class="soft">Nothing: no alert, no failed run within the hour, nothing that waits for more than a minute, no job set aside.</p>`)}</${Asked}></section>
      <section class="card" aria-label="Last"><header><h2>Last</h2><span class="grow"></span>${tooMany ? html`<span>more happens than can be listed</span>` : ""}</header>
        ${events.length ? html`<ul class="lines events">${events.map((event) => html`<${Event} key=${`${event.revision?.change}.${event.revision?.position}`} event=${event} />`)}</ul>` : html`<p class="soft">${known ? "Nothing happened lately. What happens comes here at once." : "Looking…"}</p>`}</section>
    </div>
  </div>`;
}
