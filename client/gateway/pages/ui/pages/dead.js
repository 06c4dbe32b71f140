// Dead letters: runs that used up their attempts, by job and kind of error; run again or forget.
import { post, read } from "../lib/api.js";
import { groups, quoted, useNewest } from "../lib/dead.js";
import { html, useEffect, useMemo, useRef, useState } from "../lib/dom.js";
import { many, number } from "../lib/format.js";
import { useList } from "../lib/list.js";
import { link, namespace, setParams, useParams } from "../lib/route.js";
import { can } from "../lib/session.js";
import { ms, now } from "../lib/time.js";
import { AskEach, useAsking, useKeys } from "../components/ask.js";
import { Button, Id, Time } from "../components/bits.js";
import { Asked, Empty, Failed } from "../components/notes.js";
import { filterOf, Search } from "../components/search.js";
import { Columns, List, Table, usePicked } from "../components/table.js";

const FIELDS = {
  job: { help: "job=mail* begins so" }, kind: { help: "kind of the error: ValueError" }, error: { help: "words of its message", sign: ":" },
  queue: { help: "where it waited" }, handler: { help: "what it calls" }, "labels.": { help: "labels.team=billing", sign: "" },
  end_time: { help: "when it failed: end_time>2026-12-01T00:00:00Z", sign: ">" }, scheduled_time: { help: "the time it was for", sign: ">" },
  last_worker: { help: "who had it last" }, unique_key: { help: "its business key" }, flow: { help: "the flow run it is of" },
  cause: { values: ["SCHEDULE", "TRIGGER", "UPSTREAM", "BACKFILL"], help: "why there was a run" }, attempt: { help: "how many attempts it had", sign: ">" },
};
const ACTS = {
  requeue: {
    path: "/v1/deadLetters:requeue", counted: "requeued", word: "Run again", past: "run again", kind: "",
    says: "They get fresh attempts, and do what their job says now, in the queue and with the priority that they had.",
  },
  purge: {
    path: "/v1/deadLetters:purge", counted: "purged", word: "Forget", past: "forgotten", kind: "bad",
    says: "Their runs leave the history. This cannot be undone.",
  },
};
const may = (act) => can(act === "requeue" ? "DeadLetterService/RequeueDeadLetters" : "DeadLetterService/PurgeDeadLetters");
const filterOfGroup = (group) => `job=${quoted(group.job)} AND kind=${quoted(group.kind)}`;
// A star at the end of a value would stand for more than this group.
const actable = (group) => !group.kind.endsWith("*");
const idOf = (run) => run.id;
const byJob = (text) => filterOf(text, "job");

function GroupName({ group }) {
  const { since } = useParams();
  const to = link("/dead", { view: "runs", q: filterOfGroup(group), since });
  return html`<a class="key" href=${to}>${group.job}</a>`;
}

const groupColumns = (ask, filter) => [
  { name: "job", title: "Job", kind: "cut", cell: (group) => html`<${GroupName} group=${group} />` },
  { name: "count", title: "Count", num: true, cell: (group) => html`<strong>${number(group.count)}</strong>` },
  { name: "error", title: "Error", kind: "error", cell: (group) => html`<span class="is-bad">${group.kind || "no kind"}</span> <span class="soft" title=${group.message}>${group.message}</span>` },
  { name: "newest", title: "Newest", cell: (group) => html`<${Time} at=${group.newest} />` },
  { name: "oldest", title: "Oldest", lesser: true, cell: (group) => html`<${Time} at=${group.oldest} />` },
  { name: "queue", title: "Queue", lesser: true, cell: (group) => [...group.queues].slice(0, 3).join(", ") },
  { name: "acts", title: "", num: true, lesser: true, cell: (group) => actable(group) && html`<span class="bar tight">${Object.entries(ACTS).map(([act, one]) => may(act) && html`<${Button} kind=${one.kind} onClick=${() => ask({ act, filter: joined(filter, filterOfGroup(group)) })}>${one.word}…</${Button}>`)}</span>` },
];
const joined = (one, other) => (one && other ? `(${one}) AND ${other}` : one || other);
const SINCE = { "": { word: "Any time" }, "1h": { word: "Last hour", size: 3_600_000 }, "24h": { word: "Last day", size: 86_400_000 } };
// From when on, as a filter; counted from when it was chosen, so that the list is the same list.
const useSince = (since) => useMemo(() => (SINCE[since]?.size ? `end_time>${new Date(now() - SINCE[since].size).toISOString()}` : ""), [since]);

function Groups({ filter, ask }) {
  const { since } = useParams();
  const asked = useNewest(filter);
  const grouped = useMemo(() => groups(asked.data?.runs ?? []), [asked.data]);
  const columns = groupColumns(ask, filter);
  return html`<${Asked} asked=${asked} what="list dead letters" rows=${6}>${(data) => html`
    ${data.more ? html`<p class="is-warn">${number(data.total)} lie here, and the newest ${number(data.runs.length)} are counted: a group may have more, and older groups are not listed. What is done to a group is done to all of it; a filter finds the others.</p>` : ""}
    ${grouped.length ? html`<${Table} columns=${columns} rows=${grouped} idOf=${(group) => group.key} label="Dead letters by job and error" open=${(group) => link("/dead", { view: "runs", q: filterOfGroup(group), since })} />`
      : filter ? html`<${Empty} title="Nothing fits"><p>No dead letter fits <code>${filter}</code>.</p><${Button} onClick=${() => setParams({ q: "", since: "" })}>Show all</${Button}></${Empty}>`
      : html`<${NoneYet} />`}
    <div class="table-foot"><span>${grouped.length ? `${many(grouped.length, "group")} of ${many(data.runs.length, "dead letter")}${data.more ? `, the newest of ${number(data.total)}` : ""}` : ""}</span></div>`}
  </${Asked}>`;
}

const NoneYet = () => html`<${Empty} title="No dead letters"><p>A run that fails on its last attempt comes to lie here, and waits for a person: look why, mend it, let it run again.</p></${Empty}>`;

const RUN_COLUMNS = [
  { name: "run", title: "Run", cell: (run) => html`<a class="key mono" href=${link(["/runs", run.id])} title=${run.id}>${run.job}</a>` },
  { name: "ended", title: "Failed", cell: (run) => html`<${Time} at=${run.endTime} />` },
  { name: "scheduled", title: "Was for", lesser: true, cell: (run) => html`<${Time} at=${run.scheduledTime} as="clock" />` },
  { name: "error", title: "Error", kind: "error", cell: (run) => html`<span class="is-bad">${run.error?.kind || "no kind"}</span> <span class="soft" title=${run.error?.message}>${run.error?.message}</span>` },
  { name: "attempts", title: "Attempts", num: true, lesser: true, cell: (run) => number(run.attempt) },
  { name: "worker", title: "Worker", lesser: true, kind: "cut", cell: (run) => run.attempts?.at(-1)?.worker },
  { name: "queue", title: "Queue", lesser: true, hidden: true, cell: (run) => run.queue },
  { name: "id", title: "Id", hidden: true, cell: (run) => html`<${Id} id=${run.id} />` },
];

async function askRuns({ filter, pageSize, pageToken, withCount }, signal) {
  const found = await read("/v1/deadLetters", { namespace: namespace(), filter, pageSize, pageToken, withCount }, { signal });
  return { ...found, rows: found.runs ?? [] };
}

// It joins or leaves the list, so the list is asked for again.
const changeOfRun = (event) => (["EVENT_KIND_RUN_FAILED", "EVENT_KIND_RUN_REQUEUED"].includes(event.kind) ? { id: event.run?.id } : null);

const again = (id) => post(`/v1/deadLetters/${encodeURIComponent(id)}:requeue`, { namespace: namespace() });

function Runs({ from }) {
  const list = useList({ name: `dead ${from}`, counts: true, ask: askRuns, idOf, change: changeOfRun, filter: (text) => joined(byJob(text), from) });
  const picked = usePicked(list.rows, idOf);
  const [asking, setAsking] = useAsking(list.q);
  const pickable = can("DeadLetterService/RequeueDeadLetter");
  const count = picked.ids.size;
  return html`
    ${count ? html`<div class="bar"><span class="soft">${count} picked:</span><${Button} onClick=${() => setAsking([...picked.ids])}>Run again…</${Button}>
      <${Button} kind="plain" onClick=${picked.clear}>Pick none</${Button}></div>` : ""}
    ${asking ? html`<${AskEach} ids=${asking} act=${again} title="Run again" what="dead letter" yes="Run again" close=${() => setAsking(null)} done=${() => (list.again(), picked.clear())}><p>${ACTS.requeue.says}</p></${AskEach}>` : ""}
    <${List} list=${list} columns=${RUN_COLUMNS} idOf=${idOf} picked=${pickable ? picked : null} open=${(run) => link(["/runs", run.id])} label="Dead letters" none=${from ? html`<${Empty} title="None in this time"><${Button} onClick=${() => setParams({ since: "" })}>Show all</${Button}></${Empty}>` : html`<${NoneYet} />`} />`;
}

// A question about all dead letters that fit a filter: how many there are is asked first, and only
// those are touched that were there then. What fails while somebody reads the question stays.
// Each step does up to 1,000.
const STEPS_MAX = 1_000;

// `counted` is the field of the answer that says how many were done.
function AskFit({ path, counted, filter, title, yes, past, kind = "", close, done, children }) {
  const [state, setState] = useState({ stage: "counting", plan: null, error: null, changed: 0, left: 0 });
  const stop = useRef(false);
  const frame = useKeys();
  const put = (more) => setState((before) => ({ ...before, ...more }));
  useEffect(() => {
    planned(filter).then((plan) => put({ stage: "asked", plan }), (error) => put({ stage: "failed", error }));
    return () => { stop.current = true; };
  }, [filter]);

  const run = async () => {
    put({ stage: "running" });
    let [changed, more, left] = [0, true, 0];
    try {
      for (let step = 0; step < STEPS_MAX && more && !stop.current; step += 1) {
        const answer = await post(path, { namespace: namespace(), filter: state.plan.filter });
        const now = Number(answer[counted] ?? 0);
        changed += now;
        left = Number(answer.leftOut ?? 0);
        more = Boolean(answer.more) && now > 0;
        put({ changed, left });
      }
      put({ stage: more ? "stopped" : "done" });
      done();
      if (!more && !left) close();
    } catch (error) {
      put({ stage: "failed", error });
    }
  };

  const { stage, plan } = state;
  const count = plan ? `${plan.exact ? "" : "at least "}${many(plan.count, "dead letter")}` : "…";
  const ran = ["running", "done", "stopped"].includes(stage) || state.changed > 0;
  return html`<div class="ask ${kind}" role="group" tabindex="-1" ref=${frame} aria-label=${title} onKeyDown=${(event) => event.key === "Escape" && close()}>
    <h2>${title}: ${count}</h2>
    ${children}
    ${plan?.until ? html`<p class="soft">Those that failed up to <${Time} at=${plan.until} as="clock" />. What fails later stays.</p>` : ""}
    ${ran ? html`<p role="status">${number(state.changed)} ${past}${state.left ? `; ${number(state.left)} stay, since another run has their business key` : ""}${stage === "running" ? "…" : "."}</p>` : ""}
    ${state.error ? html`<${Failed} error=${state.error} />` : ""}
    <div class="bar">
      ${stage === "asked" ? html`<${Button} kind="main ${kind}" disabled=${!plan.count} onClick=${run}>${yes} ${count}</${Button}>` : ""}
      <${Button} onClick=${close}>${stage === "asked" || stage === "counting" ? "Not now" : stage === "running" ? "Stop" : "Close"}</${Button}>
    </div>
  </div>`;
}

async function planned(filter) {
  const found = await read("/v1/deadLetters", { namespace: namespace(), filter, pageSize: 1, withCount: true });
  const until = found.runs?.[0]?.endTime;
  const count = Number(found.count ?? 0);
  if (!until) return { count: 0, exact: true, filter, until: undefined };
  const limit = `end_time<=${new Date(ms(until)).toISOString()}`;
  return { count, exact: Boolean(found.countIsExact), until, filter: filter ? `(${filter}) AND ${limit}` : limit };
}

export function Page() {
  const { q = "", view = "groups", since = "" } = useParams();
  const [asking, setAsking] = useAsking(q, view, since);
  const from = useSince(since);
  const [turn, setTurn] = useState(0);
  const filter = joined(byJob(q), from);
  const one = ACTS[asking?.act];
  return html`<div class="page">
    <div class="page-head"><h1>Dead letters</h1><span class="grow"></span>
      ${Object.entries(ACTS).map(([act, { word, kind }]) => may(act) && html`<${Button} kind=${kind} onClick=${() => setAsking({ act, filter })}>${word === "Run again" ? "Run all" : "Forget all"}${filter ? " that fit" : ""}${word === "Run again" ? " again" : ""}…</${Button}>`)}</div>
    <div class="bar"><${Search} value=${q} put=${(text) => setParams({ q: text, at: "" })} fields=${FIELDS} placeholder="words in the job, or kind=ValueError AND queue=mail" label="Filter dead letters" />
      <div class="chips" role="group" aria-label="When they failed">${Object.entries(SINCE).map(([name, { word }]) => html`<button type="button" class="chip" aria-pressed=${since === name} onClick=${() => setParams({ since: name, at: "" })}>${word}</button>`)}</div>
      ${view === "runs" ? html`<span class="grow"></span><${Columns} columns=${RUN_COLUMNS} />` : ""}</div>
    <nav class="tabs" aria-label="View"><a href=${link("/dead", { q, since })} aria-current=${view === "runs" ? undefined : "page"}>By job and error</a>
      <a href=${link("/dead", { q, view: "runs", since })} aria-current=${view === "runs" ? "page" : undefined}>One by one</a></nav>
    ${asking ? html`<${AskFit} key=${`${asking.act} ${asking.filter}`} path=${one.path} counted=${one.counted} filter=${asking.filter} title=${one.word} yes=${one.word} past=${one.past} kind=${one.kind}
      close=${() => setAsking(null)} done=${() => setTurn((before) => before + 1)}><p>${one.says}${asking.filter ? html` Filter: <code>${asking.filter}</code>` : " All of this namespace."}</p></${AskFit}>` : ""}
    ${view === "runs" ? html`<${Runs} key=${turn} from=${from} />` : html`<${Groups} key=${turn} filter=${filter} ask=${setAsking} />`}
  </div>`;
}
