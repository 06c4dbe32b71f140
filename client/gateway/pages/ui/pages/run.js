// One run: where its time went, what came of it, and why it waits.
import { post, read } from "../lib/api.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "../lib/dom.js";
import { number, payloadText, toBase64, words } from "../lib/format.js";
import { useLiveAsked } from "../lib/load.js";
import { go, link, namespace, useParams } from "../lib/route.js";
import { isUnderWay, logText } from "../lib/runs.js";
import { can } from "../lib/session.js";
import { typedLength } from "../lib/time.js";
import { Ask } from "../components/ask.js";
import { Button, Copy, Id, Labels, Meter, Time } from "../components/bits.js";
import { Area, Choice, Text } from "../components/fields.js";
import { Asked } from "../components/notes.js";
import { runHref, Waterfall } from "../components/runs.js";
import { State, stateOf } from "../components/state.js";

// How often progress and log of a run under way are asked for: no event carries them.
const FOLLOW_MS = 2_000;
const NEAR_PX = 24;
// What became of the scheduled time where nothing was unusual.
const USUAL = new Set([undefined, "OUTCOME_UNSPECIFIED", "OUTCOME_RAN", "OUTCOME_TRIGGERED"]);

const pathOf = (id, verb = "") => `/v1/runs/${encodeURIComponent(id)}${verb}`;

// A run that is under way, and one of which the deadline is known, is explained beside it.
async function ask(id, signal) {
  const about = { namespace: namespace() };
  const found = await read(pathOf(id), about, { signal });
  const waits = ["RUN_STATE_PENDING", "RUN_STATE_RETRYING"].includes(found.state);
  const why = waits ? await read(pathOf(id, "/explain"), about, { signal }) : null;
  return { ...found, why };
}

function Why({ why }) {
  if (!why) return "";
  const obstacles = why.obstacles ?? [];
  return html`<div class="note" data-is="warn"><h2>${obstacles.length ? "What it waits for" : why.summary}</h2>
    ${obstacles.map((one) => html`<p><strong>${words(one.kind)}:</strong> ${one.message}${one.until ? html` (<${Time} at=${one.until} />)` : ""}</p>`)}</div>`;
}

function Ahead({ run }) {
  const { done, total, message, time } = run.progress ?? {};
  if (!run.progress) return "";
  return html`<div class="card"><header><h2>Progress</h2><span class="grow"></span>${time ? html`<span>said <${Time} at=${time} /></span>` : ""}</header>
    ${Number(total) ? html`<${Meter} part=${Number(done ?? 0)} whole=${Number(total)} />` : ""}
    <p>${number(done)}${Number(total) ? ` of ${number(total)}` : ""}${message ? ` · ${message}` : ""}</p></div>`;
}

function Bytes({ payload, empty }) {
  const { text, note } = payloadText(payload);
  if (!text) return html`<p class="soft">${payload ? note : empty}</p>`;
  return html`<pre class="text" tabindex="0">${text}</pre><${Copy} text=${text} kind="soft small">copy</${Copy}>`;
}

function Failure({ run }) {
  const { kind, message, trace } = run.error ?? {};
  if (!run.error) return "";
  return html`<div class="note" data-is=${run.state === "RUN_STATE_FAILED" ? "bad" : "warn"}><h2>${isUnderWay(run) ? "An earlier try: " : ""}${kind || "it did not succeed"}</h2><p>${message}</p>
    ${trace ? html`<pre class="text" tabindex="0">${trace}</pre><${Copy} text=${trace} kind="soft small">copy</${Copy}>` : ""}</div>`;
}

function Warning({ run }) {
  return run.warning ? html`<div class="note" data-is="warn"><h2>It succeeded with a warning</h2><p>${run.warning}</p></div>` : "";
}

// What its failure triggered, or why nothing was.
function Triggered({ run }) {
  const { job, run: id, whyNot } = run.onFailure ?? {};
  if (!job) return "";
  return html`<p>Its failure ${id ? html`triggered <a href=${link(["/runs", id])}>a run of ${job}</a>.` : html`triggered nothing: ${whyNot}`}</p>`;
}

function Facts({ run }) {
  const rows = [
    ["Job", html`<a href=${link(["/jobs", run.job])}>${run.job}</a>`], ["Id", html`<${Id} id=${run.id} most=${60} />`],
    ["Why it exists", `${words(run.cause)}${USUAL.has(run.outcome) ? "" : `, ${words(run.outcome)}`}`],
    ["Scheduled", html`<${Time} at=${run.scheduledTime} as="both" />`], ["Due", html`<${Time} at=${run.dueTime} as="both" />`],
    ["Queue", html`<a href=${link(["/queues", run.queue || "default"])}>${run.queue || "default"}</a>`], ["Priority", words(run.priority) || "medium"],
    run.worker && ["Worker", run.worker], Number(run.token) && ["Token", html`<span title="The fence: each lease has a larger one.">${number(run.token)}</span>`],
    run.leaseDeadline && ["Lease until", html`<${Time} at=${run.leaseDeadline} as="both" />`], run.retryTime && ["Next try", html`<${Time} at=${run.retryTime} as="both" />`],
    run.uniqueKey && ["Business key", html`<code>${run.uniqueKey}</code>`], run.concurrencyKey && ["Counts under", html`<code>${run.concurrencyKey}</code>`],
    run.flow && ["Flow", html`<a href=${link(["/flows", run.flow])}>${run.flow}</a>`],
    Object.keys(run.labels ?? {}).length && ["Labels", html`<${Labels} labels=${run.labels} />`],
    run.traceContext && ["Trace", html`<${Id} id=${run.traceContext.traceparent.slice(3, 35)} most=${40} />`],
  ].filter(Boolean);
  return html`<div class="card"><header><h2>Facts</h2></header><dl class="pairs">${rows.map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl></div>`;
}

// The end of what is logged stays in sight, unless somebody has scrolled back.
function Log({ text }) {
  const frame = useRef(null);
  const follows = useRef(true);
  useLayoutEffect(() => { if (follows.current) frame.current.scrollTop = frame.current.scrollHeight; }, [text]);
  const look = () => { follows.current = frame.current.scrollTop + frame.current.clientHeight > frame.current.scrollHeight - NEAR_PX; };
  return html`<pre class="text" tabindex="0" ref=${frame} onScroll=${look}>${text}</pre>`;
}

const TABS = [["result", "Result"], ["payload", "Payload"], ["log", "Log"], ["upstream", "Upstream"]];

function Inside({ run }) {
  const { tab = "result" } = useParams();
  const log = logText(run);
  return html`<div class="card"><nav class="tabs" aria-label="Parts of the run">${TABS.filter(([name]) => name !== "upstream" || (run.upstream ?? []).length).map(([name, word]) => html`<a href=${link(["/runs", run.id], { tab: name === "result" ? "" : name })} aria-current=${tab === name ? "page" : undefined}>${word}${name === "log" && run.state === "RUN_STATE_RUNNING" ? " (live)" : ""}</a>`)}</nav>
    ${tab === "result" ? html`<${Bytes} payload=${run.result} empty=${isUnderWay(run) ? "It has not ended." : "It returned nothing."} />` : ""}
    ${tab === "payload" ? html`<${Bytes} payload=${run.payload} empty="The job's own payload; see its spec." />` : ""}
    ${tab === "log" ? (log ? html`<${Log} text=${log} />` : html`<p class="soft">${isUnderWay(run) ? "Nothing has come yet: what its handler logs is sent with its progress and its checkpoints, and at its end." : "Its handler has logged nothing."}</p>`) : ""}
    ${tab === "upstream" ? html`<ul class="lines">${(run.upstream ?? []).map((one) => html`<li><${State} state=${one.state} /><a class="grow" href=${link(["/runs", one.run])}>${one.job}</a><code>${payloadText(one.result).text.slice(0, 200)}</code></li>`)}</ul>` : ""}
  </div>`;
}

function Again({ run, close }) {
  const [payload, setPayload] = useState(run.payload?.hidden ? "" : payloadText(run.payload).text);
  const [priority, setPriority] = useState(run.priority ?? "");
  const act = async () => {
    const body = { namespace: namespace(), queue: run.queue, labels: run.labels ?? {}, ...(priority ? { priority } : {}) };
    if (payload.trim()) body.payload = { data: toBase64(payload), contentType: run.payload?.contentType || "application/json" };
    const made = await post(`/v1/jobs/${encodeURIComponent(run.job)}:trigger`, body);
    go(runHref(made));
  };
  return html`<${Ask} title=${`Run ${run.job} again`} yes="Run" act=${act} close=${close}>
    <${Area} label="Payload" value=${payload} put=${setPayload} help="Empty: the job's own." />
    <${Choice} label="Priority" value=${priority} put=${setPriority} options=${[["", "the job's own"], ["PRIORITY_HIGH", "high"], ["PRIORITY_MEDIUM", "medium"], ["PRIORITY_LOW", "low"]]} />
  </${Ask}>`;
}

function Requeue({ run, close, again }) {
  const first = payloadText(run.payload).text;
  const [payload, setPayload] = useState(first);
  const path = `/v1/deadLetters/${encodeURIComponent(run.id)}`;
  const act = async () => {
    const about = { namespace: namespace() };
    if (payload !== first) await post(path, { ...about, payload: { data: toBase64(payload), contentType: run.payload?.contentType || "application/json" } }, { verb: "PATCH" });
    await post(`${path}:requeue`, about);
    again();
  };
  return html`<${Ask} title="Requeue this dead letter" yes="Requeue" act=${act} close=${close}>
    <p>It keeps its id and runs again with all its attempts.</p>
    ${run.payload?.hidden ? "" : html`<${Area} label="Payload" value=${payload} put=${setPayload} help="As it failed; change it if that was the reason. Empty: the job's own." />`}
  </${Ask}>`;
}

function Cancel({ run, verb, close, again }) {
  const [reason, setReason] = useState("");
  const [grace, setGrace] = useState("30s");
  const size = typedLength(grace);
  const asks = verb === "cancel" && run.state === "RUN_STATE_RUNNING";
  const act = async () => {
    await post(pathOf(run.id, `:${verb}`), { namespace: namespace(), reason, ...(asks ? { grace: `${size / 1_000}s` } : {}) });
    again();
  };
  return html`<${Ask} title=${verb === "cancel" ? "Cancel this run" : "Terminate this run"} kind="bad" yes=${verb === "cancel" ? "Cancel it" : "Terminate it"} act=${act} close=${close} ready=${!asks || size !== undefined}>
    <p>${verb === "cancel" ? (asks ? "Its worker is asked to stop, and has this long." : "It waits, so it ends at once.") : "Its lease ends now; its worker is not asked."}</p>
    <${Text} label="Reason, for people" value=${reason} put=${setReason} />
    ${asks ? html`<${Text} label="Time to stop" value=${grace} put=${setGrace} help="such as 30s or 5m" />` : ""}
  </${Ask}>`;
}

function Head({ run, again }) {
  const [asking, setAsking] = useState("");
  const close = () => setAsking("");
  const on = (name) => () => setAsking(name);
  const under = isUnderWay(run);
  const retry = async () => {
    await post(pathOf(run.id, ":retry"), { namespace: namespace() });
    again();
  };
  return html`
    <div class="page-head">
      <h1><a href=${link(["/jobs", run.job])}>${run.job}</a> <span class="soft">·</span> <${Time} at=${run.scheduledTime} as="clock" /></h1>
      <${State} state=${stateOf(run)} more=${run.attempt > 1 ? `on try ${run.attempt}` : run.cancelRequested ? "asked to stop" : ""} />
      <span class="grow"></span>
      ${run.state === "RUN_STATE_RETRYING" && can("RunService/RetryRun") ? html`<${Button} onClick=${on("retry")}>Retry now</${Button}>` : ""}
      ${run.state === "RUN_STATE_FAILED" && can("DeadLetterService/RequeueDeadLetter") ? html`<${Button} kind="main" onClick=${on("requeue")}>Requeue…</${Button}>` : ""}
      ${can("JobService/TriggerJob") ? html`<${Button} onClick=${on("again")}>Run again…</${Button}>` : ""}
      ${under && can("RunService/CancelRun") ? html`<${Button} kind="bad" onClick=${on("cancel")}>Cancel…</${Button}>` : ""}
      ${run.state === "RUN_STATE_RUNNING" && can("RunService/TerminateRun") ? html`<${Button} kind="bad" onClick=${on("terminate")}>Terminate…</${Button}>` : ""}
    </div>
    ${asking === "retry" ? html`<${Ask} title="Begin the next attempt now" yes="Retry now" act=${retry} close=${close} />` : ""}
    ${asking === "again" ? html`<${Again} run=${run} close=${close} />` : ""}
    ${asking === "requeue" ? html`<${Requeue} run=${run} close=${close} again=${again} />` : ""}
    ${asking === "cancel" || asking === "terminate" ? html`<${Cancel} run=${run} verb=${asking} close=${close} again=${again} />` : ""}`;
}

export function Page({ run: id }) {
  const asked = useLiveAsked((signal) => ask(id, signal), `${namespace()} ${id}`, (event) => event.run?.id === id);
  const under = asked.data && isUnderWay(asked.data);
  useEffect(() => {
    if (!under) return undefined;
    const timer = setInterval(() => document.hidden || asked.soon(), FOLLOW_MS);
    return () => clearInterval(timer);
  }, [under, id]);
  return html`<div class="page"><${Asked} asked=${asked} what="run">${(run) => html`
    <${Head} run=${run} again=${asked.again} />
    <${Why} why=${run.why} />
    <${Failure} run=${run} /><${Warning} run=${run} /><${Triggered} run=${run} />
    <${Waterfall} run=${run} />
    <div class="columns"><div class="page-part"><${Ahead} run=${run} /><${Inside} run=${run} /></div><${Facts} run=${run} /></div>`}</${Asked}></div>`;
}

