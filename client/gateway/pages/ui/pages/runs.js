// Runs: those under way as they come and go, and any others by filter; cancel or retry many.
import { post, read } from "../lib/api.js";
import { html, useState } from "../lib/dom.js";
import { number } from "../lib/format.js";
import { useList } from "../lib/list.js";
import { usePolled } from "../lib/load.js";
import { namespace, setParams } from "../lib/route.js";
import { isUnderWay, RUN_FIELDS } from "../lib/runs.js";
import { can } from "../lib/session.js";
import { AskAll, AskEach } from "../components/ask.js";
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

const CHANGES = {
  CHANGE_CANCEL: { word: "Cancel", kind: "bad", says: "Those that wait end at once; running ones are asked to stop and have 30 s." },
  CHANGE_RETRY: { word: "Retry now", says: "Those that wait for their next attempt begin it now." },
  CHANGE_TERMINATE: { word: "Terminate", kind: "bad", says: "Their leases end now; workers are not asked." },
};

const path = (id, verb) => `/v1/runs/${encodeURIComponent(id)}:${verb}`;
const CALLS = { CHANGE_CANCEL: "cancel", CHANGE_RETRY: "retry", CHANGE_TERMINATE: "terminate" };

// All that fit a filter are changed by one call; filters know no ids, so what was picked one by one.
function Actions({ list, picked }) {
  const [asking, setAsking] = useState(null);
  const [reason, setReason] = useState("");
  if (!can("RunService/ChangeRuns")) return "";
  const { word, says, kind } = CHANGES[asking] ?? {};
  const count = picked.ids.size;
  const body = asking === "CHANGE_RETRY" ? {} : { reason };
  const common = { title: word, what: "run", yes: word, kind: kind ?? "", close: () => setAsking(null), done: () => (list.again(), picked.clear()) };
  const inside = html`<p>${says} Only runs under way are changed.</p>${asking === "CHANGE_RETRY" ? "" : html`<${Text} label="Reason, for people" value=${reason} put=${setReason} />`}`;
  const each = (id) => post(path(id, CALLS[asking]), { namespace: namespace(), ...body });
  return html`
    ${count || (list.filter && list.rows?.some(isUnderWay)) ? html`<div class="bar"><span class="soft">${count ? `${count} picked` : "All that fit"}:</span>
      ${Object.entries(CHANGES).map(([name, one]) => html`<${Button} kind=${one.kind ?? ""} onClick=${() => setAsking(name)}>${one.word}…</${Button}>`)}
      ${count ? html`<${Button} kind="plain" onClick=${picked.clear}>Pick none</${Button}>` : ""}</div>` : ""}
    ${asking && count ? html`<${AskEach} key=${asking} ids=${[...picked.ids]} act=${each} ...${common}>${inside}</${AskEach}>` : ""}
    ${asking && !count ? html`<${AskAll} key=${asking} path="/v1/runs:change" filter=${list.filter} change=${asking} body=${body} ...${common}>${inside}</${AskAll}>` : ""}`;
}

export function Page() {
  const list = useList({ name: "runs", counts: true, ask, idOf, change, filter: (text) => filterOf(text, "job") });
  const picked = usePicked(list.rows, idOf);
  const usage = usePolled((signal) => read(`/v1/namespaces/${encodeURIComponent(namespace() || "default")}`, {}, { signal }), namespace(), COUNTS_MS);
  const columns = columnsFor(filterOf(list.q, "job"));
  const mayChange = can("RunService/ChangeRuns");
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
