// Flow runs: how far each is, what those wait for that are stuck, and the jobs of one as a graph.
import { read } from "../lib/api.js";
import { html, useMemo } from "../lib/dom.js";
import { many, number } from "../lib/format.js";
import { gravity, stepCounts, stepState } from "../lib/graphs.js";
import { useList } from "../lib/list.js";
import { useLiveAsked } from "../lib/load.js";
import { link, namespace, useParams } from "../lib/route.js";
import { Id, Length, Time } from "../components/bits.js";
import { Graph } from "../components/graph.js";
import { Asked, Empty, Failed } from "../components/notes.js";
import { filterOf, Search } from "../components/search.js";
import { Shape, State, stateWord, tone } from "../components/state.js";
import { Columns, List, Table } from "../components/table.js";

const STATES = ["LIVE", "STUCK", "SUCCEEDED", "FAILED"];
const FIELDS = { state: { values: STATES, help: "where it stands" }, job: { help: "one that it reaches" } };
const QUICK = [["All", ""], ["Under way", "state=LIVE"], ["Stuck", "state=STUCK"], ["Failed", "state=FAILED"]];
const WAITS_SHOWN = 3;
const idOf = (flow) => flow.id;
const byJob = (text) => filterOf(text, "job");

async function ask({ filter, pageSize, pageToken }, signal) {
  const found = await read("/v1/flows", { namespace: namespace(), filter, pageSize, pageToken }, { signal });
  return { ...found, rows: found.flows ?? [] };
}

// A run of a flow changes how that stands, which the flow itself says.
const change = (event) => {
  const id = event.flow || event.run?.flow;
  return id ? { id } : null;
};

// "publish waits for build-report", at most three.
function waitsOf(flow) {
  const waiting = (flow.steps ?? []).filter((step) => stepState(step) === "WAITING");
  const said = waiting.slice(0, WAITS_SHOWN).map((step) => `${step.job} waits for ${(step.because ?? []).join(", ") || "others"}`);
  if (waiting.length > WAITS_SHOWN) said.push(`${number(waiting.length - WAITS_SHOWN)} more wait`);
  return said.join("; ");
}

const Steps = ({ flow }) => html`<span class="counts">${stepCounts(flow.steps).map(([state, count]) => html`<span class="state is-${tone(state)}" title=${`${number(count)} ${stateWord(state)}`}><${Shape} state=${state} />${number(count)}<span class="unseen"> ${stateWord(state)}</span></span>`)}${flow.moreSteps ? html`<span class="soft">and more</span>` : ""}</span>`;

const COLUMNS = [
  { name: "first", title: "Begins with", kind: "cut", cell: (flow) => html`<a class="key" href=${link(["/flows", flow.id])} title=${flow.id}>${flow.steps?.[0]?.job ?? flow.id}</a>` },
  { name: "state", title: "State", cell: (flow) => html`<${State} state=${flow.state} />` },
  { name: "steps", title: "Jobs", cell: (flow) => html`<${Steps} flow=${flow} />` },
  { name: "began", title: "Began", cell: (flow) => html`<${Time} at=${flow.createTime} />` },
  { name: "took", title: "Lasted", num: true, lesser: true, cell: (flow) => html`<${Length} from=${flow.createTime} to=${flow.endTime} />` },
  { name: "for", title: "Was for", lesser: true, cell: (flow) => html`<${Time} at=${flow.scheduledTime} as="clock" />` },
  { name: "waits", title: "Waits for", lesser: true, kind: "rest", cell: (flow) => (["STATE_LIVE", "STATE_STUCK"].includes(flow.state) ? html`<span class=${flow.state === "STATE_STUCK" ? "is-warn" : "soft"} title=${waitsOf(flow)}>${waitsOf(flow)}</span>` : "") },
];

function All() {
  const { q = "" } = useParams();
  const list = useList({ name: "flows", ask, idOf, change, filter: byJob });
  return html`<div class="page">
    <div class="page-head"><h1>Flows</h1><span class="soft">each line is one pass through jobs that depend on each other</span></div>
    <div class="bar"><${Search} value=${q} put=${list.setFilter} fields=${FIELDS} placeholder="words in a job, or state=STUCK" label="Filter flow runs" />
      <div class="chips">${QUICK.map(([word, text]) => html`<button type="button" class="chip" aria-pressed=${q === text} onClick=${() => list.setFilter(text)}>${word}</button>`)}</div>
      <span class="grow"></span><${Columns} columns=${COLUMNS} /></div>
    <${List} list=${list} columns=${COLUMNS} idOf=${idOf} open=${(flow) => link(["/flows", flow.id])} label="Flow runs"
      none=${html`<${Empty} title="No flow runs yet"><p>One begins when a job runs that others come after: <code>raftsched job create load --after extract --handler load</code>.</p></${Empty}>`} />
  </div>`;
}

const STEPS_SHOWN = 200;
// Of so many runs that wait it is asked why; a step that has no run says it by itself.
const EXPLAINED = 6;
const WAITS = new Set(["PENDING", "RETRYING"]);

async function askOne(id, signal) {
  const of = { namespace: namespace() };
  const flow = await read(`/v1/flows/${encodeURIComponent(id)}`, of, { signal });
  const first = flow.steps?.[0]?.job;
  // Its jobs may be gone or too many by now; the steps are there all the same.
  const graph = first ? await read(`/v1/jobs/${encodeURIComponent(first)}/graph`, of, { signal }).catch((error) => ({ error })) : {};
  const waiting = (flow.steps ?? []).filter((step) => step.run && WAITS.has(stepState(step))).slice(0, EXPLAINED);
  const why = await Promise.all(waiting.map((step) => read(`/v1/runs/${encodeURIComponent(step.run)}/explain`, of, { signal }).then(({ summary }) => [step.run, (summary ?? "").replace(/^The run \S+: /, "")], () => [step.run, ""])));
  return { flow: { ...flow, why: new Map(why) }, graph, ageMs: flow.ageMs };
}

const because = (step, why) => {
  if (why?.get(step.run)) return why.get(step.run);
  const names = (step.because ?? []).join(", ");
  if (!names) return "";
  return stepState(step) === "CANNOT_RUN" ? `since these ended otherwise: ${names}` : `waits for ${names}`;
};
const stepColumns = (why) => [
  { name: "job", title: "Job", kind: "cut", cell: (step) => html`<a class="key" href=${link(["/jobs", step.job])}>${step.job}</a>` },
  { name: "state", title: "State", cell: (step) => html`<${State} state=${stepState(step)} />` },
  { name: "why", title: "Why", kind: "wide soft", cell: (step) => because(step, why) },
  { name: "run", title: "Run", lesser: true, cell: (step) => step.run && html`<a href=${link(["/runs", step.run])}>its run</a>` },
];

function One({ id }) {
  const asked = useLiveAsked((signal) => askOne(id, signal), `flow ${namespace()} ${id}`, (event) => event.flow === id || event.run?.flow === id);
  const flow = asked.data?.flow;
  const steps = useMemo(() => new Map((flow?.steps ?? []).map((step) => [step.job, step])), [flow]);
  const listed = useMemo(() => [...(flow?.steps ?? [])].sort((one, other) => gravity(stepState(other)) - gravity(stepState(one))).slice(0, STEPS_SHOWN), [flow]);
  const first = flow?.steps?.[0]?.job;
  const hrefOf = (job) => (steps.get(job)?.run ? link(["/runs", steps.get(job).run]) : link(["/jobs", job]));
  return html`<div class="page">
    <div class="page-head"><a class="trail" href=${link("/flows")}>Flows</a><h1>${first ?? "Flow run"}</h1>
      ${flow ? html`<${State} state=${flow.state} /><${Steps} flow=${flow} />` : ""}</div>
    <${Asked} asked=${asked} what="show the flow run">${({ graph }) => html`
      <dl class="pairs wide"><dt>Began</dt><dd><${Time} at=${flow.createTime} as="both" /></dd><dt>${flow.endTime ? "Lasted" : "Under way for"}</dt><dd><${Length} from=${flow.createTime} to=${flow.endTime} fine /></dd>
        <dt>Was for</dt><dd><${Time} at=${flow.scheduledTime} as="clock" /></dd><dt>Id</dt><dd><${Id} id=${flow.id} most=${48} /></dd></dl>
      ${flow.state === "STATE_STUCK" ? html`<div class="note" data-is="warn" role="status"><span>It waits longer than a job of it allows: ${waitsOf(flow)}.</span></div>` : ""}
      ${graph.error ? html`<${Failed} error=${graph.error} again=${asked.again} what="draw the graph" />`
        : graph.jobs?.length ? html`<${Graph} graph=${graph} stateOf=${(job) => stepState(steps.get(job))} hrefOf=${hrefOf} around=${first} label="Jobs of this flow run and what they wait for" />` : ""}
      <section class="page-part"><h2>${many(flow.steps?.length ?? 0, "job")} reached${listed.length < (flow.steps?.length ?? 0) ? `; the ${number(STEPS_SHOWN)} that need a look first` : ""}</h2>
        <${Table} columns=${stepColumns(flow.why)} rows=${listed} idOf=${(step) => step.job} open=${(step) => hrefOf(step.job)} label="Steps" empty="No job is reached yet." /></section>`}
    </${Asked}>
  </div>`;
}

export const Page = ({ flow }) => (flow ? html`<${One} id=${flow} />` : html`<${All} />`);
