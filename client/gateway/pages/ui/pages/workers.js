// Workers: who is there, how busy, with which labels, handlers and version; drain one.
import { ApiError, post, read } from "../lib/api.js";
import { html, useState } from "../lib/dom.js";
import { many, number, percent } from "../lib/format.js";
import { useList } from "../lib/list.js";
import { useEvery } from "../lib/load.js";
import { SLOW, usePaces } from "../lib/pace.js";
import { pulse } from "../lib/live.js";
import { link, namespace, useParams } from "../lib/route.js";
import { can } from "../lib/session.js";
import { Ask } from "../components/ask.js";
import { Button, Copy, Labels, Meter, Time } from "../components/bits.js";
import { Text } from "../components/fields.js";
import { Empty } from "../components/notes.js";
import { filterOf, Search } from "../components/search.js";
import { State } from "../components/state.js";
import { length } from "../lib/time.js";
import { Columns, List } from "../components/table.js";

const EVERY_MS = 3_000;
const STEADY = new Set();
const SHOWN = 2;
const FIELDS = { queue: { help: "one that it pulls from" }, "labels.": { help: "labels.zone=eu-1", sign: "" }, draining: { values: ["true", "false"], help: "takes no more" } };
// Workers of several tenants may have the same id.
export const workerId = (worker) => `${worker.worker} ${(worker.namespaces ?? []).join()} ${worker.connectTime}`;
const byQueue = (text) => filterOf(text, "queue");

// Sessions of workers are no part of the state: nobody but a leader has them.
export async function readWorkers(query, signal) {
  if (pulse.get().cluster && !pulse.get().cluster.leader) {
    throw new ApiError({ reason: "NO_QUORUM", message: "Only a leader knows which workers are connected. They go on with what they have, and come back as soon as there is one." });
  }
  return read("/v1/workers", { namespace: namespace(), ...query }, { signal, local: true });
}

async function ask({ filter, pageSize, pageToken }, signal) {
  const found = await readWorkers({ filter, pageSize, pageToken }, signal);
  return { ...found, rows: found.workers ?? [] };
}

const some = (names = []) => (names.length > SHOWN ? `${names.slice(0, SHOWN).join(", ")} and ${names.length - SHOWN} more` : names.join(", "));

// How many times as long as on the others; what is near enough to one is the same.
function Pace({ pace }) {
  if (pace?.factor === undefined) return html`<span class="soft" title="No other worker had runs of the same jobs lately.">–</span>`;
  const slow = pace.factor >= SLOW;
  const words = slow ? `${pace.factor >= 10 ? Math.round(pace.factor) : pace.factor.toFixed(1)} times as long` : pace.factor <= 1 / SLOW ? "faster" : "the same";
  return slow ? html`<${State} state="WARNING" word=${words} />` : words;
}

export const workerColumns = (drain, paces) => [
  { name: "worker", title: "Worker", kind: "cut", cell: (worker) => html`<${Copy} text=${worker.worker} kind="mono">${worker.worker}</${Copy}>${worker.draining ? html` <span class="tag">draining</span>` : ""}` },
  { name: "state", title: "State", lesser: true, cell: (worker) => html`<${State} state=${worker.draining ? "DRAINING" : "CONNECTED"} />` },
  { name: "busy", title: "Busy", cell: (worker) => html`<span class="busy"><a href=${link("/runs", { q: `worker="${worker.worker}"` })}>${number(worker.leased)}</a><span class="soft">of ${worker.slots ? number(worker.slots) : "?"}</span>${worker.slots ? html`<${Meter} part=${worker.leased ?? 0} whole=${worker.slots} title=${percent(worker.leased ?? 0, worker.slots)} />` : ""}</span>` },
  ...(paces ? [
    { name: "took", title: "Median", num: true, lesser: true, cell: (worker) => { const pace = paces.by.get(worker.worker); return pace ? html`<span title=${`half of its last ${many(pace.count, "run")} took no longer`}>${length(pace.median)}</span>` : "–"; } },
    { name: "pace", title: "Against others", cell: (worker) => html`<${Pace} pace=${paces.by.get(worker.worker)} />` },
  ] : []),
  { name: "queues", title: "Queues", kind: "short", cell: (worker) => html`<span title=${(worker.queues ?? []).join(", ")}>${some(worker.queues)}</span>` },
  { name: "labels", title: "Labels", kind: "cut", lesser: true, cell: (worker) => html`<${Labels} labels=${worker.labels} />` },
  { name: "handlers", title: "Handlers", kind: "short", lesser: true, cell: (worker) => html`<span title=${(worker.handlers ?? []).join(", ")}>${(worker.handlers ?? []).length ? some(worker.handlers) : "all"}</span>` },
  { name: "program", title: "Version", kind: "cut", lesser: true, hidden: Boolean(paces), cell: (worker) => worker.program },
  { name: "since", title: "Connected", lesser: true, hidden: true, cell: (worker) => html`<${Time} at=${worker.connectTime} />` },
  { name: "seen", title: "Last word", lesser: true, hidden: true, cell: (worker) => html`<${Time} at=${worker.lastSeenTime} />` },
  { name: "namespaces", title: "Namespaces", lesser: true, hidden: true, cell: (worker) => (worker.namespaces ?? []).join(", ") },
  ...(drain ? [{ name: "acts", title: "", num: true, cell: (worker) => !worker.draining && html`<${Button} onClick=${() => drain(worker)}>Drain…</${Button}>` }] : []),
];

function Drain({ worker, close, done }) {
  const [reason, setReason] = useState("");
  const act = async () => {
    await post(`/v1/workers/${encodeURIComponent(worker.worker)}:drain`, { reason });
    done();
  };
  return html`<${Ask} title=${`Drain the worker ${worker.worker}`} yes="Drain it" act=${act} close=${close}>
    <p>It finishes the ${many(worker.leased ?? 0, "run")} that it has and takes no more. To let it work again it has to be started anew.</p>
    <${Text} label="Why, for its log" value=${reason} put=${setReason} placeholder="the machine is replaced" /></${Ask}>`;
}

function Sum({ rows, whole, paces }) {
  const slots = rows.reduce((sum, worker) => sum + (worker.slots ?? 0), 0);
  const busy = rows.reduce((sum, worker) => sum + (worker.leased ?? 0), 0);
  const versions = new Set(rows.map((worker) => worker.program)).size;
  const draining = rows.filter((worker) => worker.draining).length;
  return html`<p class="soft">${whole ? "" : "On this page: "}${many(rows.length, "worker")} · ${many(slots, "slot")}, ${number(busy)} busy (${percent(busy, slots)}) · ${many(versions, "version")}${draining ? ` · ${number(draining)} draining` : ""}${paces.count ? ` · times of the last ${many(paces.count, "run")} of this namespace, compared with other workers on the same jobs` : ""}</p>`;
}

export function Page() {
  const { q = "" } = useParams();
  const listed = useList({ name: "workers", ask, idOf: workerId, change: () => null, filter: byQueue });
  const [asking, setAsking] = useState(null);
  useEvery(listed.soon, EVERY_MS);
  const list = { ...listed, fresh: STEADY };
  const paces = usePaces();
  const columns = workerColumns(can("WorkerService/DrainWorker") ? setAsking : null, paces);
  return html`<div class="page">
    <div class="page-head"><h1>Workers</h1></div>
    <div class="bar"><${Search} value=${q} put=${list.setFilter} fields=${FIELDS} placeholder="queue=mail AND labels.zone=eu-1" label="Filter workers" /><span class="grow"></span><${Columns} columns=${columns} /></div>
    ${asking ? html`<${Drain} key=${workerId(asking)} worker=${asking} close=${() => setAsking(null)} done=${list.again} />` : ""}
    ${list.rows?.length ? html`<${Sum} rows=${list.rows} paces=${paces} whole=${!list.next && !list.at} />` : ""}
    <${List} list=${list} columns=${columns} idOf=${workerId} label="Workers"
      none=${html`<${Empty} title="No workers are connected"><p>Runs wait until one pulls from their queue. Start one: <code>Worker("node-1:7400").run()</code> in Python, or <code>raftsched worker run --executor http</code> for HTTP, gRPC and commands.</p></${Empty}>`} />
  </div>`;
}
