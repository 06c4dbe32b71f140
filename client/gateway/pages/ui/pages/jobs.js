// Jobs: search, what each does and when, how its last runs went; change many at once.
import { read } from "../lib/api.js";
import { html, useState } from "../lib/dom.js";
import { LAST, useOutcomes, useOutcomesAlive, useWords } from "../lib/facts.js";
import { median, number, percent, words } from "../lib/format.js";
import { useList } from "../lib/list.js";
import { filtersOf } from "../lib/picked.js";
import { link, namespace } from "../lib/route.js";
import { can } from "../lib/session.js";
import { action, queueOf, written, zoneOfJob } from "../lib/specs.js";
import { length } from "../lib/time.js";
import { AskAll, useAsking } from "../components/ask.js";
import { Button, Labels, Strip, Time } from "../components/bits.js";
import { Text } from "../components/fields.js";
import { Empty } from "../components/notes.js";
import { filterOf, Search } from "../components/search.js";
import { Shape, State, stateWord } from "../components/state.js";
import { Columns, List, usePicked } from "../components/table.js";

const RUN_STATES = ["SUCCEEDED", "FAILED", "CANCELLED", "SKIPPED"];
const FIELDS = {
  name: { help: "name:mail contains, name=mail* begins", sign: ":" },
  state: { values: ["ACTIVE", "PAUSED", "FINISHED", "BROKEN"], help: "whether it fires" },
  queue: { help: "where its runs wait" }, owner: { help: "whom to ask" }, description: { help: "its words", sign: ":" },
  handler: { help: "what it calls; http, grpc, shell" }, "labels.": { help: "labels.team=billing", sign: "" },
  last_state: { values: RUN_STATES, help: "how the last run ended" }, zone: { help: "its time zone" }, calendar: { help: "whose days it leaves out" }, on_failure: { help: "the job it triggers then" },
  creator: { help: "who made it" }, next_time: { help: "due next; next_time<2026-12-01T00:00:00Z", sign: "<" },
  create_time: { help: "when it was made", sign: ">" }, update_time: { help: "when it was changed", sign: ">" },
};
const QUICK = [["All", ""], ["Active", "state=ACTIVE"], ["Paused", "state=PAUSED"], ["Last run failed", "last_state=FAILED"], ["Set aside", "state=BROKEN"]];

const idOf = (job) => job.name;

async function ask(page, signal) {
  const found = await read("/v1/jobs", { namespace: namespace(), ...page }, { signal });
  return { ...found, rows: found.jobs ?? [] };
}

// What an event makes of a row. A job in an event has the next time of its schedules alone, so the
// list is asked again; runs of jobs that are not listed change nothing here.
function change(event) {
  if (!event.job) return null;
  return { id: event.job, known: Boolean(event.run || event.ledger) };
}

// The state of a job that fires is its shape alone; any other is said.
function Name({ job }) {
  const { state } = job.status ?? {};
  return html`<span class="named" title=${`${stateWord(state)}${job.spec?.description ? `: ${job.spec.description}` : ""}`}><${Shape} state=${state} />
    <a class="key" href=${link(["/jobs", job.name])}>${job.name}</a>${state === "STATE_ACTIVE" ? html`<span class="unseen">${stateWord(state)}</span>` : html`<span class="tag">${stateWord(state)}</span>`}</span>`;
}

function When({ job }) {
  const { ref, value } = useWords(job);
  const shown = value?.length ? value : written(job.spec);
  const extra = shown.length > 1 ? ` and ${shown.length - 1} more` : "";
  return html`<span ref=${ref} title=${shown.join("\n")}>${shown[0]}${extra}</span>`;
}

function Last({ job }) {
  const { ref, value = [] } = useOutcomes(job);
  return html`<a ref=${ref} href=${link(["/jobs", job.name])} tabindex="-1"><${Strip} states=${value.map((run) => run.state)} slots=${LAST} /></a>`;
}

function Good({ job }) {
  const { ref, value = [] } = useOutcomes(job);
  const ended = value.filter((run) => ["RUN_STATE_SUCCEEDED", "WARNING", "RUN_STATE_FAILED"].includes(run.state));
  const good = ended.filter((run) => run.state !== "RUN_STATE_FAILED").length;
  return html`<span ref=${ref} class=${good < ended.length ? "is-bad" : ""}>${percent(good, ended.length)}</span>`;
}

function Took({ job }) {
  const { ref, value = [] } = useOutcomes(job);
  const middle = median(value.map((run) => run.took).filter((took) => took !== undefined));
  return html`<span ref=${ref}>${middle === undefined ? "–" : length(middle)}</span>`;
}

const COLUMNS = [
  { name: "name", title: "Name", sort: "name", kind: "cut", cell: (job) => html`<${Name} job=${job} />` },
  { name: "state", title: "State", hidden: true, lesser: true, cell: (job) => html`<${State} state=${job.status?.state} />` },
  { name: "when", title: "When", kind: "cut", lesser: true, cell: (job) => html`<${When} job=${job} />` },
  { name: "next", title: "Next", sort: "next_time", cell: (job) => html`<${Time} at=${job.status?.state === "STATE_ACTIVE" ? job.status.nextDueTime : undefined} zone=${zoneOfJob(job)} next />` },
  { name: "last", title: "Last 20", cell: (job) => html`<${Last} job=${job} />` },
  { name: "good", title: "Succeeded", num: true, lesser: true, cell: (job) => html`<${Good} job=${job} />` },
  { name: "took", title: "Median", num: true, lesser: true, cell: (job) => html`<${Took} job=${job} />` },
  { name: "live", title: "Under way", num: true, lesser: true, cell: (job) => (Number(job.status?.live) ? number(job.status.live) : html`<span class="soft">0</span>`) },
  { name: "queue", title: "Queue", lesser: true, cell: (job) => queueOf(job.spec) },
  { name: "does", title: "Does", kind: "cut", hidden: true, lesser: true, cell: (job) => action(job.spec) },
  { name: "priority", title: "Priority", hidden: true, lesser: true, cell: (job) => words(job.spec?.priority) || "medium" },
  { name: "owner", title: "Owner", hidden: true, lesser: true, cell: (job) => job.spec?.owner },
  { name: "labels", title: "Labels", hidden: true, lesser: true, cell: (job) => html`<${Labels} labels=${job.spec?.labels} />` },
  { name: "failed", title: "Failed, ever", num: true, hidden: true, lesser: true, cell: (job) => number(job.status?.failed) },
  { name: "made", title: "Made", sort: "create_time", hidden: true, lesser: true, cell: (job) => html`<${Time} at=${job.createTime} />` },
];

const CHANGES = {
  CHANGE_PAUSE: { word: "Pause", says: "Runs under way go on; what is missed until then is treated by each job's misfire policy." },
  CHANGE_RESUME: { word: "Resume", says: "Jobs that are paused fire again." },
  CHANGE_TRIGGER: { word: "Run now", says: "One run of each, now." },
  CHANGE_DELETE: { word: "Delete", kind: "bad", says: "Runs under way are cancelled and the history is purged. This cannot be undone." },
};

function Actions({ list, picked }) {
  const [asking, setAsking] = useAsking(list.q);
  const count = picked.ids.size;
  const [reason, setReason] = useState("");
  const [until, setUntil] = useState("");
  const begin = (change) => setAsking({ change, filters: count ? filtersOf("name", picked.ids) : [list.q] });
  if (!can("JobService/ChangeJobs")) return "";
  const { word, says, kind } = CHANGES[asking?.change] ?? {};
  const pauses = asking?.change === "CHANGE_PAUSE";
  const body = pauses ? { reason, ...(until ? { until: new Date(until).toISOString() } : {}) } : {};
  const about = count ? `${count} picked` : list.q ? "All that fit" : "";
  return html`
    ${count || (list.q && list.rows?.length) ? html`<div class="bar"><span class="soft">${about}:</span>
      ${Object.entries(CHANGES).map(([change, one]) => html`<${Button} kind=${one.kind ?? ""} onClick=${() => begin(change)}>${one.word}…</${Button}>`)}
      ${count ? html`<${Button} kind="plain" onClick=${picked.clear}>Pick none</${Button}>` : ""}</div>` : ""}
    ${asking ? html`<${AskAll} key=${`${asking.change} ${asking.filters}`} path="/v1/jobs:change" filters=${asking.filters} change=${asking.change} body=${body} what="job" title=${word} yes=${word} kind=${kind ?? ""}
      close=${() => setAsking(null)} done=${() => (list.again(), picked.clear())}><p>${says}</p>
      ${pauses ? html`<div class="bar"><${Text} label="Reason, for people" value=${reason} put=${setReason} /><${Text} label="Until" kind="datetime-local" value=${until} put=${setUntil} help="Empty: until somebody resumes them." /></div>` : ""}</${AskAll}>` : ""}`;
}

export function Page() {
  useOutcomesAlive();
  const list = useList({ name: "jobs", counts: true, ask, idOf, change, filter: (text) => filterOf(text) });
  const picked = usePicked(list.rows, idOf);
  const filtered = { ...list, q: filterOf(list.q) };
  const mayMake = can("JobService/CreateJob");
  return html`<div class="page">
    <div class="page-head"><h1>Jobs</h1><span class="grow"></span>${mayMake ? html`<a class="button main" href=${link("/new-job")}>New job</a>` : ""}</div>
    <div class="bar"><${Search} value=${list.q} put=${list.setFilter} fields=${FIELDS} placeholder="words, or labels.team=billing" label="Filter jobs" />
      <div class="chips">${QUICK.map(([word, text]) => html`<button type="button" class="chip" aria-pressed=${list.q === text} onClick=${() => list.setFilter(text)}>${word}</button>`)}</div>
      <span class="grow"></span><${Columns} columns=${COLUMNS} /></div>
    <${Actions} list=${filtered} picked=${picked} />
    <${List} list=${list} columns=${COLUMNS} idOf=${idOf} picked=${can("JobService/ChangeJobs") ? picked : null} open=${(job) => link(["/jobs", job.name])} label="Jobs"
      none=${html`<${Empty} title="No jobs yet"><p>A job says what to do and when. Make one here, or by <code>raftsched job create report --cron "0 9 * * *" --handler hello</code>.</p>
        ${mayMake ? html`<a class="button main" href=${link("/new-job")}>New job</a>` : ""}</${Empty}>`} />
  </div>`;
}

