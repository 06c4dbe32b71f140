// Queues: what waits in each and for how long, its limits, who pulls from it; pause and resume.
import { post, read, write } from "../lib/api.js";
import { html, useState } from "../lib/dom.js";
import { many, number } from "../lib/format.js";
import { useList } from "../lib/list.js";
import { useEvery, usePolled } from "../lib/load.js";
import { link, namespace } from "../lib/route.js";
import { can } from "../lib/session.js";
import { useTally, WINDOW_MS } from "../lib/tally.js";
import { length } from "../lib/time.js";
import { Ask } from "../components/ask.js";
import { Button, Length, Meter } from "../components/bits.js";
import { Text } from "../components/fields.js";
import { Asked, Empty } from "../components/notes.js";
import { State } from "../components/state.js";
import { Columns, List, Table } from "../components/table.js";
import { readWorkers, workerColumns, workerId } from "./workers.js";

const EVERY_MS = 3_000;
const STEADY = new Set();
const idOf = (queue) => queue.name;

async function ask({ pageSize, pageToken }, signal) {
  const found = await read("/v1/queues", { namespace: namespace(), pageSize, pageToken }, { signal });
  return { ...found, rows: found.queues ?? [] };
}

const change = (event) => (event.queue ? { id: event.queue.name } : null);
const leasedFrom = (event) => (event.kind === "EVENT_KIND_RUN_LEASED" ? event.run?.queue || "default" : null);

// How it stands: paused, or why what waits does not go on as far as the queue itself shows it.
function QueueState({ queue }) {
  if (queue.paused) return html`<${State} state="PAUSED" />`;
  const waits = Number(queue.ready ?? 0) > 0;
  if (waits && !queue.workers) return html`<${State} state="WARNING" word="no worker" />`;
  if (waits && queue.concurrency && Number(queue.leased ?? 0) >= queue.concurrency) return html`<${State} state="WARNING" word="at its limit" />`;
  return html`<${State} state="ACTIVE" word="open" />`;
}

// The button, or with `form` the question above what it is about.
function PauseQueue({ queue, asking, ask, form, done }) {
  const [reason, setReason] = useState("");
  const verb = queue.paused ? "resume" : "pause";
  if (!can(queue.paused ? "QueueService/ResumeQueue" : "QueueService/PauseQueue")) return "";
  if (!form) {
    const open = asking === queue.name;
    return html`<${Button} pressed=${open} onClick=${() => ask(open ? null : queue.name)}>${queue.paused ? "Resume" : "Pause"}…</${Button}>`;
  }
  const act = async () => {
    const body = { namespace: namespace(), ...(verb === "pause" ? { reason } : {}) };
    await post(`/v1/queues/${encodeURIComponent(queue.name)}:${verb}`, body);
    done();
  };
  const waits = `${number(queue.ready)} waiting, ${number(queue.leased)} running`;
  return html`<${Ask} key=${`${queue.name} ${verb}`} title=${`${verb === "pause" ? "Pause" : "Resume"} the queue ${queue.name}`} yes=${verb === "pause" ? "Pause" : "Resume"} act=${act} close=${() => ask(null)}>
    <p>${verb === "pause" ? `${waits}. Nothing more is given to workers from it until it is resumed; runs that are under way go on.` : `${waits}. Workers get runs from it again.`}</p>
    ${verb === "pause" ? html`<${Text} label="Why, for the others" value=${reason} put=${setReason} placeholder="the mail server is down" />` : ""}
  </${Ask}>`;
}

// So many in the last minute, or in what was seen of it; nothing before there is something to say.
const LEAST_MS = 5_000;

function Rate({ seen }) {
  if (seen.over < LEAST_MS) return html`<span class="soft" title="counted from now on, by the events that this page sees">–</span>`;
  const whole = seen.over >= WINDOW_MS;
  const title = whole ? "in the last minute, by the events that this page saw" : "since this page looks; a whole minute is shown after one";
  return html`<span class="nowrap" title=${title}>${number(seen.count)}${whole ? "" : html` <span class="soft">in ${length(seen.over)}</span>`}</span>`;
}

const columnsOf = (seen, asking, setAsking) => [
  { name: "name", title: "Queue", kind: "cut", cell: (queue) => html`<a class="key" href=${link(["/queues", queue.name])}>${queue.name}</a>` },
  { name: "state", title: "State", cell: (queue) => html`<${QueueState} queue=${queue} />` },
  { name: "ready", title: "Waiting", num: true, cell: (queue) => html`<a href=${link("/runs", { q: `state=PENDING AND queue="${queue.name}"` })}>${number(queue.ready)}</a>` },
  { name: "oldest", title: "Oldest waits", num: true, cell: (queue) => (queue.oldestReadyTime ? html`<${Length} from=${queue.oldestReadyTime} />` : html`<span class="soft">–</span>`) },
  { name: "leased", title: "Running", num: true, lesser: true, cell: (queue) => html`${number(queue.leased)}${queue.concurrency ? html` <span class="soft">of ${number(queue.concurrency)}</span>` : ""}` },
  { name: "rate", title: "Begun / min", num: true, lesser: true, cell: (queue) => html`<${Rate} seen=${seen(queue.name)} />` },
  { name: "limit", title: "Limit", lesser: true, num: true, cell: (queue) => (queue.rate ? `${number(queue.rate)}/s` : html`<span class="soft">none</span>`) },
  { name: "workers", title: "Workers", num: true, lesser: true, cell: (queue) => html`<a href=${link("/workers", { q: `queue=${queue.name}` })}>${number(queue.workers)}</a>` },
  { name: "why", title: "Why paused", kind: "cut", lesser: true, cell: (queue) => html`<span title=${queue.pauseReason}>${queue.pauseReason}</span>` },
  { name: "acts", title: "", num: true, cell: (queue) => html`<${PauseQueue} queue=${queue} asking=${asking} ask=${setAsking} />` },
];

function All() {
  const listed = useList({ name: "queues", ask, idOf, change });
  const [asking, setAsking] = useState(null);
  const tally = useTally(leasedFrom, namespace());
  // Numbers change all the time: they are asked for again, and the rows do not flash for it.
  useEvery(listed.soon, EVERY_MS);
  const list = { ...listed, fresh: STEADY, q: "" };
  const columns = columnsOf((name) => tally.of(name, Date.now()), asking, setAsking);
  const asked = (list.rows ?? []).find((queue) => queue.name === asking);
  return html`<div class="page">
    <div class="page-head"><h1>Queues</h1><span class="grow"></span><${Columns} columns=${columns} /></div>
    ${asked ? html`<${PauseQueue} form queue=${asked} ask=${setAsking} done=${list.again} />` : ""}
    <${List} list=${list} columns=${columns} idOf=${idOf} open=${(queue) => link(["/queues", queue.name])} label="Queues"
      none=${html`<${Empty} title="No queues yet"><p>A queue is there as soon as a job names one; jobs that name none wait in <code>default</code>.</p></${Empty}>`} />
  </div>`;
}

const WORKERS_MAX = 200;
const PRIORITIES = ["HIGH", "MEDIUM", "LOW"];

async function askOne(name, signal) {
  const of = { namespace: namespace() };
  const waiting = (priority) => read("/v1/runs", { ...of, filter: `state=PENDING AND queue="${name}" AND priority=${priority}`, pageSize: 1, withCount: true }, { signal });
  const [queue, workers, ...depth] = await Promise.all([
    read(`/v1/queues/${encodeURIComponent(name)}`, of, { signal }),
    readWorkers({ filter: `queue="${name}"`, pageSize: WORKERS_MAX }, signal).then((found) => ({ rows: found.workers ?? [] }), (error) => ({ error })),
    ...PRIORITIES.map(waiting),
  ]);
  return { queue, workers, depth: depth.map((one, at) => ({ priority: PRIORITIES[at], count: Number(one.count ?? 0), exact: one.countIsExact })), ageMs: queue.ageMs };
}

const count = ({ count: found, exact }) => `${number(found)}${exact ? "" : "+"}`;

function Depth({ queue, depth }) {
  const most = Math.max(1, ...depth.map((one) => one.count));
  return html`<section class="card"><header><h2>Waiting</h2></header>
    <p class="figure">${number(queue.ready)} <small>ready for a worker${queue.oldestReadyTime ? html`; the oldest for <${Length} from=${queue.oldestReadyTime} fine />` : ""}</small></p>
    <table class="plain"><tbody>${depth.map((one) => html`<tr><td>${one.priority.toLowerCase()}</td><td class="num"><a href=${link("/runs", { q: `state=PENDING AND queue="${queue.name}" AND priority=${one.priority}` })}>${count(one)}</a></td>
      <td class="rest"><${Meter} part=${one.count} whole=${most} title=${`${count(one)} with priority ${one.priority.toLowerCase()}`} /></td></tr>`)}</tbody></table>
    <p class="soft small">By priority all that are pending are counted, those too that are not due yet or wait for other jobs.</p></section>`;
}

function Limits({ queue, again }) {
  const [edit, setEdit] = useState(null);
  const fields = [["concurrency", "Running at once", "runs"], ["rate", "Begun a second", "runs"], ["burst", "Begun at once after a rest", "as the rate"]];
  const act = async () => {
    const body = { namespace: namespace(), ...Object.fromEntries(fields.map(([name]) => [name, Number(edit[name] || 0)])) };
    await write("PATCH", `/v1/queues/${encodeURIComponent(queue.name)}`, { body, query: { updateMask: "concurrency,rate,burst" }, etag: queue.etag });
    again();
  };
  const whole = (text) => /^\d{0,9}$/.test(text ?? "");
  return html`<section class="card"><header><h2>Limits</h2><span class="grow"></span>${can("QueueService/UpdateQueue") && !edit ? html`<${Button} onClick=${() => setEdit(Object.fromEntries(fields.map(([name]) => [name, queue[name] ? String(queue[name]) : ""])))}>Change…</${Button}>` : ""}</header>
    ${edit ? html`<${Ask} title=${`Limits of ${queue.name}`} yes="Keep them" act=${act} close=${() => setEdit(null)} ready=${fields.every(([name]) => whole(edit[name]))}>
      <div class="trio">${fields.map(([name, word, unit]) => html`<${Text} label=${word} help=${whole(edit[name]) ? `${unit}; empty: ${name === "burst" ? "as many as the rate" : "no limit"}` : "a whole number"} value=${edit[name]} put=${(text) => setEdit((before) => ({ ...before, [name]: text.trim() }))} />`)}</div></${Ask}>`
    : html`<dl class="pairs">
      <dt>Running at once</dt><dd>${queue.concurrency ? number(queue.concurrency) : html`<span class="soft">no limit</span>`}</dd>
      <dt>Begun a second</dt><dd>${queue.rate ? `${number(queue.rate)}, ${number(queue.burst || queue.rate)} at once after a rest` : html`<span class="soft">no limit</span>`}</dd></dl>`}</section>`;
}

function One({ name }) {
  const asked = usePolled((signal) => askOne(name, signal), `queue ${namespace()} ${name}`, EVERY_MS);
  const tally = useTally(leasedFrom, namespace());
  const [asking, setAsking] = useState(null);
  const queue = asked.data?.queue;
  return html`<div class="page">
    <div class="page-head"><a class="trail" href=${link("/queues")}>Queues</a><h1>${name}</h1>
      ${queue ? html`<${QueueState} queue=${queue} /><span class="soft">${queue.pauseReason}</span><span class="grow"></span>
        <a class="button" href=${link("/runs", { q: `queue="${name}"` })}>Its runs</a><a class="button" href=${link("/jobs", { q: `queue="${name}"` })}>Its jobs</a><${PauseQueue} queue=${queue} asking=${asking} ask=${setAsking} />` : ""}</div>
    ${queue && asking ? html`<${PauseQueue} form queue=${queue} ask=${setAsking} done=${asked.again} />` : ""}
    <${Asked} asked=${asked} what="show the queue">${(data) => html`
      <div class="trio">
        <${Depth} queue=${data.queue} depth=${data.depth} />
        <section class="card"><header><h2>Running</h2></header><p class="figure">${number(data.queue.leased)} <small>${data.queue.concurrency ? `of ${number(data.queue.concurrency)} at once` : "now"}</small></p>
          <dl class="pairs"><dt>Begun in a minute</dt><dd><${Rate} seen=${tally.of(name, Date.now())} /></dd><dt>Workers</dt><dd>${number(data.queue.workers)}</dd></dl></section>
        <${Limits} queue=${data.queue} again=${asked.again} />
      </div>
      <section class="page-part"><h2>${data.workers.error ? "Workers" : many(data.workers.rows.length, "worker")} of this queue</h2>
        ${data.workers.error ? html`<p class="soft">${data.workers.error.message}</p>`
          : html`<${Table} columns=${workerColumns(null)} rows=${data.workers.rows} idOf=${workerId} label="Workers of this queue" empty="No worker pulls from this queue. Start one: Worker(…, queues=[…]).run() in Python." />`}</section>`}
    </${Asked}>
  </div>`;
}

export const Page = ({ queue }) => (queue ? html`<${One} name=${queue} />` : html`<${All} />`);
