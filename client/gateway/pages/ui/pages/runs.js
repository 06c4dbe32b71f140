// Runs: those under way as they come and go, and any others by filter; cancel or retry many.
import { post, read } from "../lib/api.js";
import { html, useState } from "../lib/dom.js";
import { number } from "../lib/format.js";
import { useList } from "../lib/list.js";
import { usePolled } from "../lib/load.js";
import { link, namespace, setParams } from "../lib/route.js";
import { isUnderWay, RUN_FIELDS } from "../lib/runs.js";
import { can } from "../lib/session.js";
import { AskAll, AskEach, useAsking } from "../components/ask.js";
import { Button } from "../components/bits.js";
import { Text } from "../components/fields.js";
import { Empty } from "../components/notes.js";
import { runColumns, runHref } from "../components/runs.js";
import { filterOf, Search } from "../components/search.js";
import { Columns, List, usePicked } from "../components/table.js";

// What is counted without being looked at has its number. Of those under way the namespace counts only
// what its quota does, so the list says how many there are.
const QUICK = [
  ["Under way", ""], ["Running", "state=RUNNING", "leases"], ["Waiting", "state=PENDING"], ["Retrying", "state=RETRYING"],
  ["Failed", "state=FAILED", "deadLetters"], ["Succeeded", "state=SUCCEEDED"], ["Cancelled", "state=CANCELLED"],
];
const COUNTS_MS = 5_000;
const FAILED = "state=FAILED";
const ALWAYS = ["state", "job", "due", "late", "took", "cause", "worker", "remark"];
const CHOSEN = ["queue", "priority", "key", "labels", "outcome", "scheduled", "started", "ended", "id"];

// Which columns there are for a filter, and which of them the API has an index for.
function columnsFor(filter) {
  const isFailed = filter === FAILED;
  const always = isFailed ? ALWAYS.map((name) => (name === "due" ? "ended" : name)) : ALWAYS;
  const chosen = runColumns(...CHOSEN.filter((name) => !always.includes(name)), ...(isFailed ? ["due"] : [])).map((column) => ({ ...column, hidden: true, lesser: true }));
  const sorts = isFailed ? { ended: "end_time" } : filter && !/state=(RUNNING|PENDING|RETRYING)$/.test(filter) ? {} : { scheduled: "scheduled_time" };
  return [...runColumns(...always), ...chosen].map((column) => ({ ...column, sort: sorts[column.name] }));
}

const idOf = (run) => run.id;

async function ask(page, signal) {
  const found = await read("/v1/runs", { namespace: namespace(), ...page }, { signal });
  return { ...found, rows: found.runs ?? [] };
}

const change = (event) => (event.run ? { id: event.run.id, row: event.run } : null);

const hasFailed = (run) => run.state === "RUN_STATE_FAILED";
const runPath = (id, verb) => `/v1/runs/${encodeURIComponent(id)}:${verb}`;
// `fits`: the runs for which there is something to do. `path`: the call for one; without a change for
// all that fit a filter, those that failed are dead letters and have a page of their own.
const CHANGES = {
  CHANGE_CANCEL: { word: "Cancel", kind: "bad", fits: isUnderWay, path: (id) => runPath(id, "cancel"), says: "Those that wait end at once; running ones are asked to stop and have 30 s." },
  CHANGE_RETRY: { word: "Retry now", fits: (run) => run.state === "RUN_STATE_RETRYING", path: (id) => runPath(id, "retry"), says: "Those that wait for their next attempt begin it now." },
  CHANGE_TERMINATE: { word: "Terminate", kind: "bad", fits: (run) => run.state === "RUN_STATE_RUNNING", path: (id) => runPath(id, "terminate"), says: "Their leases end now; workers are not asked." },
  REQUEUE: { word: "Run again", alone: true, fits: hasFailed, path: (id) => `/v1/deadLetters/${encodeURIComponent(id)}:requeue`, says: "They keep their ids and get fresh attempts, and do what their job says now." },
};
const may = (name) => can(name === "REQUEUE" ? "DeadLetterService/RequeueDeadLetter" : "RunService/ChangeRuns");

// All that fit a filter are changed by one call; filters know no ids, so what was picked one by one.
// Whoever is asked about stays the same when what is picked changes.
function Actions({ list, picked }) {
  const [asking, setAsking] = useAsking(list.filter);
  const [reason, setReason] = useState("");
  const count = picked.ids.size;
  const rows = (list.rows ?? []).filter((run) => !count || picked.ids.has(run.id));
  const offered = count || list.filter ? Object.entries(CHANGES).filter(([name, one]) => may(name) && (count || !one.alone) && rows.some(one.fits)) : [];
  const again = !count && list.filter && rows.some(hasFailed) && can("DeadLetterService/ListDeadLetters");
  const begin = (name, one) => setAsking({ name, ids: count ? rows.filter(one.fits).map(idOf) : null });
  const { word, says, kind = "", path } = CHANGES[asking?.name] ?? {};
  const asksWhy = kind === "bad";
  const body = asksWhy ? { reason } : {};
  const common = { title: word, what: "run", yes: word, kind, close: () => setAsking(null), done: () => (list.again(), picked.clear()) };
  const inside = html`<p>${says}</p>${asksWhy ? html`<${Text} label="Reason, for people" value=${reason} put=${setReason} />` : ""}`;
  const each = (id) => post(path(id), { namespace: namespace(), ...body });
  return html`
    ${count || offered.length || again ? html`<div class="bar"><span class="soft">${count ? `${count} picked` : "All that fit"}:</span>
      ${offered.map(([name, one]) => html`<${Button} kind=${one.kind ?? ""} onClick=${() => begin(name, one)}>${one.word}…</${Button}>`)}
      ${again ? html`<a class="button" href=${link("/dead", { view: "runs", q: list.filter })}>To the dead letters</a>` : ""}
      ${count ? html`<${Button} kind="plain" onClick=${picked.clear}>Pick none</${Button}>` : ""}</div>` : ""}
    ${asking?.ids ? html`<${AskEach} key=${`${asking.name} ${asking.ids}`} ids=${asking.ids} act=${each} ...${common}>${inside}</${AskEach}>` : ""}
    ${asking && !asking.ids ? html`<${AskAll} key=${asking.name} path="/v1/runs:change" filters=${[list.filter]} change=${asking.name} body=${body} ...${common}>${inside}</${AskAll}>` : ""}`;
}

export function Page() {
  const list = useList({ name: "runs", counts: true, ask, idOf, change, filter: (text) => filterOf(text, "job") });
  const picked = usePicked(list.rows, idOf);
  const usage = usePolled((signal) => read(`/v1/namespaces/${encodeURIComponent(namespace() || "default")}`, {}, { signal }), namespace(), COUNTS_MS);
  const columns = columnsFor(filterOf(list.q, "job"));
  const mayChange = Object.keys(CHANGES).some(may);
  return html`<div class="page">
    <div class="page-head"><h1>Runs</h1></div>
    <div class="bar"><${Search} value=${list.q} put=${list.setFilter} fields=${RUN_FIELDS} placeholder="words of the job, or kind=Timeout" label="Filter runs" />
      <div class="chips">${QUICK.map(([word, text, counter]) => html`<button type="button" class="chip" aria-pressed=${list.q === text} onClick=${() => setParams({ q: text, at: "", order: "" })}>${word}${counter && usage.data ? html`<b>${number(usage.data.usage?.[counter])}</b>` : ""}</button>`)}</div>
      <span class="grow"></span><${Columns} columns=${columns} /></div>
    <${Actions} list=${{ ...list, filter: filterOf(list.q, "job") }} picked=${picked} />
    <${List} list=${list} columns=${columns} idOf=${idOf} picked=${mayChange ? picked : null} open=${runHref} label="Runs"
      none=${html`<${Empty} title="Nothing is under way"><p>Runs come here when a job fires and go when they end. Ended ones: choose “Failed” or “Succeeded”, or filter by job.</p></${Empty}>`} />
  </div>`;
}
