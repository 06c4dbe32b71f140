// One job: when it happens next, what became of each scheduled time, its runs, why it does not fire,
// its spec and what that was before.
import { read } from "../lib/api.js";
import { html } from "../lib/dom.js";
import { many, number, words } from "../lib/format.js";
import { useList } from "../lib/list.js";
import { useAsked, useLiveAsked } from "../lib/load.js";
import { link, namespace, useParams } from "../lib/route.js";
import { RUN_FIELDS } from "../lib/runs.js";
import { action, queueOf, written, clockZone } from "../lib/specs.js";
import { useJobActions } from "../components/jobactions.js";
import { AtClockChanges, Labels, Nexts, Time } from "../components/bits.js";
import { Ledger } from "../components/ledger.js";
import { Asked, Empty } from "../components/notes.js";
import { runColumns, runHref } from "../components/runs.js";
import { filterOf, Search } from "../components/search.js";
import { Spec, Versions } from "../components/spec.js";
import { Shape, State } from "../components/state.js";
import { Columns, List } from "../components/table.js";

const NEXT = 6;
const pathOf = (name, below = "") => `/v1/jobs/${encodeURIComponent(name)}${below}`;

async function ask(name, signal) {
  const about = { namespace: namespace() };
  const job = await read(pathOf(name), about, { signal });
  const scheduled = (job.spec?.schedules ?? []).length > 0;
  const [status, preview] = await Promise.all([
    read(pathOf(name, "/status"), about, { signal }),
    scheduled ? read(pathOf(name, "/next"), { ...about, count: NEXT }, { signal }) : { occurrences: [], descriptions: [], warnings: [] },
  ]);
  return { ...job, status: { ...job.status, ...status }, preview };
}

function Next({ job }) {
  const { occurrences = [], warnings = [] } = job.preview;
  const zone = clockZone(job.spec);
  const notes = [...new Set([...warnings, ...(job.status?.warnings ?? [])])];
  return html`<section class="card" aria-label="Next">
    <header><h2>Next</h2><span title="The zone that its schedule is written in">${zone}</span><span class="grow"></span>${job.status?.leftOut ? html`<span>left out: ${job.status.leftOut}</span>` : ""}</header>
    ${occurrences.length ? html`<${Nexts} occurrences=${occurrences} zone=${zone} />` : html`<p class="soft">${(job.spec?.schedules ?? []).length ? "No time is left ahead." : "It has no schedule: it runs manually or after other jobs."}</p>`}
    ${notes.map((text) => html`<p class="state is-warn wrap"><${Shape} of="triangle" tone="warn" />${text}</p>`)}
  </section>`;
}

function Clocks({ job }) {
  const { occurrences = [] } = job.preview;
  const zone = clockZone(job.spec);
  return html`${occurrences.length ? html`<${AtClockChanges} occurrences=${occurrences} zone=${zone} about=${[job.uid, job.version]} ask=${(more, signal) => read(pathOf(job.name, "/next"), { namespace: namespace(), ...more }, { signal })} />` : ""}`;
}

const idOf = (run) => run.id;
const COLUMNS = runColumns("state", "scheduled", "started", "late", "took", "ended", "cause", "worker", "remark", "queue", "priority", "key", "labels", "outcome", "id");

function Runs({ name }) {
  const askRuns = async (page, signal) => {
    const { orderBy, ...rest } = page; // The history of a job is in one order.
    const found = await read(pathOf(name, "/history"), { namespace: namespace(), ...rest }, { signal });
    return { ...found, rows: found.runs ?? [] };
  };
  const filter = (text) => filterOf(text, "error");
  const change = (event) => (event.run && event.job === name ? { id: event.run.id, row: event.run } : null);
  const list = useList({ name: `runs of ${name}`, ask: askRuns, idOf, change, filter });
  return html`<div class="bar"><${Search} value=${list.q} put=${list.setFilter} fields=${RUN_FIELDS} placeholder="words of the error, or state=FAILED" label="Filter the runs of this job" /><span class="grow"></span><${Columns} columns=${COLUMNS} /></div>
    <${List} list=${list} columns=${COLUMNS} idOf=${idOf} open=${runHref} label="Runs of ${name}" none=${html`<${Empty} title="It has not run yet"><p>Its runs will stand here, newest scheduled time first.</p></${Empty}>`} />`;
}

function Why({ name }) {
  const asked = useLiveAsked((signal) => read(pathOf(name, "/explain"), { namespace: namespace() }, { signal }), `${namespace()} ${name}`, (event) => event.job === name);
  return html`<${Asked} asked=${asked} what="explanation" rows=${2}>${(why) => html`<div class="note"><h2>${(why.obstacles ?? []).length ? "What stands in its way" : why.summary}</h2>
    ${(why.obstacles ?? []).map((one) => html`<p><strong>${words(one.kind)}:</strong> ${one.message}${one.until ? html` (<${Time} at=${one.until} />)` : ""}</p>`)}
    ${(why.obstacles ?? []).length ? "" : html`<p>Nothing stands in its way.</p>`}</div>`}</${Asked}>`;
}

function Around({ name }) {
  const asked = useAsked((signal) => read(pathOf(name, "/graph"), { namespace: namespace() }, { signal }), `${namespace()} ${name}`);
  const side = (edges, end, title) => html`<div class="card"><header><h2>${title}</h2></header>
    ${edges.length ? html`<ul class="lines">${edges.map((edge) => html`<li><a class="grow" href=${link(["/jobs", edge[end]])}>${edge[end]}</a><span class="soft">on ${words(edge.condition) || "success"}</span></li>`)}</ul>` : html`<p class="soft">None.</p>`}</div>`;
  return html`<${Asked} asked=${asked} what="graph" rows=${2}>${(graph) => html`<div class="columns">
    ${side((graph.edges ?? []).filter((edge) => edge.downstream === name), "upstream", "It happens after")}
    ${side((graph.edges ?? []).filter((edge) => edge.upstream === name), "downstream", "What happens after it")}
    </div>${(graph.jobs ?? []).length > 1 ? html`<p><a href=${link("/flows", { job: name })}>All ${many(graph.jobs.length, "job")} of its graph</a></p>` : ""}`}</${Asked}>`;
}

const TABS = [["runs", "Runs"], ["why", "Why not?"], ["spec", "Spec"], ["versions", "Versions"], ["around", "Flow"]];

function Facts({ job }) {
  const status = job.status ?? {};
  const counts = [["fired", status.fired], ["succeeded", status.succeeded], ["failed", status.failed], ["skipped", status.skipped]];
  return html`<p class="soft facts">
    <span title="What it does"><code>${action(job.spec)}</code></span>
    <span>queue <a href=${link(["/queues", queueOf(job.spec)])}>${queueOf(job.spec)}</a></span>
    ${job.spec?.owner ? html`<span>owner ${job.spec.owner}</span>` : ""}
    ${counts.map(([word, count]) => html`<span>${number(count)} ${word}</span>`)}
    ${Number(status.live) ? html`<span>${number(status.live)} under way</span>` : ""}
    ${Number(status.backlog) ? html`<span class="is-warn">${number(status.backlog)} missed times wait</span>` : ""}
    <${Labels} labels=${job.spec?.labels} /></p>`;
}

function Seen({ job, again }) {
  const { tab = "runs" } = useParams();
  const { bar, form } = useJobActions({ job, again });
  const status = job.status ?? {};
  const said = job.preview.descriptions?.length ? job.preview.descriptions : written(job.spec);
  return html`
    <div class="page-head"><h1>${job.name}</h1><${State} state=${status.state} /><span>${said.join("; ")}</span><span class="grow"></span>${bar}</div>
    ${form}
    ${status.state === "STATE_PAUSED" ? html`<div class="note" data-is="warn"><p>Paused${status.pausedBy ? ` by ${status.pausedBy}` : ""}${status.pauseReason ? `: ${status.pauseReason}` : ""}. ${status.pauseUntil ? html`It resumes <${Time} at=${status.pauseUntil} as="both" />.` : "It does not fire until it is resumed."}</p></div>` : ""}
    ${status.state === "STATE_BROKEN" ? html`<div class="note" data-is="bad"><h2>Set aside <${Time} at=${status.brokenTime} /></h2><p>${status.brokenReason}</p></div>` : ""}
    ${job.spec?.description ? html`<p>${job.spec.description}</p>` : ""}
    <${Facts} job=${job} />
    <div class="job-top"><${Next} job=${job} /><div class="stack"><${Ledger} job=${job.name} scheduled=${(job.spec?.schedules ?? []).length > 0} /><${Clocks} job=${job} /></div></div>
    <nav class="tabs" aria-label="Parts of the job">${TABS.map(([name, word]) => html`<a href=${link(["/jobs", job.name], { tab: name === "runs" ? "" : name })} aria-current=${tab === name ? "page" : undefined}>${word}</a>`)}</nav>
    ${tab === "runs" ? html`<${Runs} name=${job.name} />` : ""}
    ${tab === "why" ? html`<${Why} name=${job.name} />` : ""}
    ${tab === "spec" ? html`<${Spec} job=${job} />` : ""}
    ${tab === "versions" ? html`<${Versions} job=${job} />` : ""}
    ${tab === "around" ? html`<${Around} name=${job.name} />` : ""}`;
}

export function Page({ job: name }) {
  const asked = useLiveAsked((signal) => ask(name, signal), `${namespace()} ${name}`, (event) => event.job === name);
  return html`<div class="page"><${Asked} asked=${asked} what="job">${(job) => html`<${Seen} job=${job} again=${asked.again} />`}</${Asked}></div>`;
}

