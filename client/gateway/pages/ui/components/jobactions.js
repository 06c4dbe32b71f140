// What can be done to one job, each asked for in the page.
import { post, write } from "../lib/api.js";
import { html, useEffect, useState } from "../lib/dom.js";
import { many, number, payloadText, toBase64 } from "../lib/format.js";
import { go, link, namespace } from "../lib/route.js";
import { can } from "../lib/session.js";
import { now } from "../lib/time.js";
import { Ask } from "./ask.js";
import { Button } from "./bits.js";
import { Area, Check, Choice, Text } from "./fields.js";
import { Failed } from "./notes.js";

const pathOf = (job, verb = "") => `/v1/jobs/${encodeURIComponent(job.name)}${verb}`;
const instant = (text) => (text ? new Date(text).toISOString() : undefined);

function RunNow({ job, close }) {
  const [payload, setPayload] = useState("");
  const [priority, setPriority] = useState("");
  const [due, setDue] = useState("");
  const [force, setForce] = useState(job.status?.state === "STATE_PAUSED");
  const act = async () => {
    const body = { namespace: namespace(), ...(priority ? { priority } : {}), ...(due ? { dueTime: instant(due) } : {}), ...(force ? { force } : {}) };
    if (payload.trim()) body.payload = { data: toBase64(payload), contentType: job.spec?.payload?.contentType || "application/json" };
    const run = await post(pathOf(job, ":trigger"), body);
    go(link(["/runs", run.id]));
  };
  const own = payloadText(job.spec?.payload);
  return html`<${Ask} title=${`Run ${job.name} now`} yes="Run" act=${act} close=${close}>
    <${Area} label="Payload" value=${payload} put=${setPayload} rows=${3} placeholder=${own.text || own.note} help="Empty: the job's own." />
    <div class="bar"><${Choice} label="Priority" value=${priority} put=${setPriority} options=${[["", "the job's own"], ["PRIORITY_HIGH", "high"], ["PRIORITY_MEDIUM", "medium"], ["PRIORITY_LOW", "low"]]} />
      <${Text} label="When" kind="datetime-local" value=${due} put=${setDue} help="Empty: now." /></div>
    <${Check} label="Also if it is paused, and beside others whatever the overlap policy says" value=${force} put=${setForce} />
  </${Ask}>`;
}

function Pause({ job, close, again }) {
  const [reason, setReason] = useState("");
  const [until, setUntil] = useState("");
  const act = async () => {
    await post(pathOf(job, ":pause"), { namespace: namespace(), reason, etag: job.etag, ...(until ? { until: instant(until) } : {}) });
    again();
  };
  return html`<${Ask} title=${`Pause ${job.name}`} yes="Pause" act=${act} close=${close}>
    <p>It does not fire until it is resumed. Runs under way go on${Number(job.status?.live) ? ` (${number(job.status.live)} are)` : ""}.</p>
    <div class="bar"><${Text} label="Reason, for people" value=${reason} put=${setReason} /><${Text} label="Until" kind="datetime-local" value=${until} put=${setUntil} help="Empty: until somebody resumes it." /></div>
  </${Ask}>`;
}

// An action without anything to fill in: `verb` of the job, or DELETE.
function Simple({ job, close, again, verb, title, yes, says, kind }) {
  const act = async () => {
    if (verb === "DELETE") {
      await write("DELETE", pathOf(job), { query: { namespace: namespace() }, etag: job.etag });
      go(link("/jobs"));
      return;
    }
    await post(pathOf(job, `:${verb}`), { namespace: namespace() });
    again();
  };
  return html`<${Ask} title=${title} yes=${yes} kind=${kind ?? ""} act=${act} close=${close}><p>${says}</p></${Ask}>`;
}

const HOUR_MS = 3_600_000;
const local = (at) => new Date(at - new Date(at).getTimezoneOffset() * 60_000).toISOString().slice(0, 16);

function Backfill({ job, close, again }) {
  const [from, setFrom] = useState(local(now() - HOUR_MS));
  const [to, setTo] = useState(local(now()));
  const [rate, setRate] = useState("60");
  const [plan, setPlan] = useState(null);
  const [error, setError] = useState(null);
  const body = { namespace: namespace(), fromTime: from && instant(from), toTime: to && instant(to), runsPerMinute: Number(rate) || 60 };
  const key = JSON.stringify(body);
  useEffect(() => {
    const abort = new AbortController();
    const timer = setTimeout(() => post(pathOf(job, ":backfill"), { ...body, validateOnly: true }, { signal: abort.signal })
      .then((found) => (setPlan(found), setError(null)), (fault) => abort.signal.aborted || (setPlan(null), setError(fault))), 300);
    return () => (clearTimeout(timer), abort.abort());
  }, [key]);
  const act = async () => {
    await post(pathOf(job, ":backfill"), body);
    again();
  };
  return html`<${Ask} title=${`Backfill ${job.name}`} yes=${`Run ${plan ? many(plan.planned ?? 0, "time") : ""}`} act=${act} close=${close} ready=${Number(plan?.planned ?? 0) > 0}>
    <div class="bar"><${Text} label="From" kind="datetime-local" value=${from} put=${setFrom} /><${Text} label="Up to" kind="datetime-local" value=${to} put=${setTo} />
      <${Text} label="Runs a minute" kind="number" value=${rate} put=${setRate} /></div>
    ${plan ? html`<p>${many(plan.planned ?? 0, "scheduled time")} would run; ${number(plan.leftAlone)} are left alone, as they ran, wait, or are left out.</p>` : ""}
    ${error ? html`<${Failed} error=${error} />` : ""}
  </${Ask}>`;
}

const SIMPLE = {
  resume: { call: "JobService/ResumeJob", word: "Resume", title: "Resume", yes: "Resume", says: "It fires again. What was missed is treated by its misfire policy.", fits: (job) => job.status?.state === "STATE_PAUSED" },
  repair: { call: "JobService/RepairJob", word: "Bring back", title: "Bring back", yes: "Bring back", says: "What broke it was mended: it fires again. What came due meanwhile is treated by its misfire policy.", fits: (job) => job.status?.state === "STATE_BROKEN" },
  dropBacklog: { call: "JobService/DropBacklog", word: "Drop backlog…", title: "Drop the backlog of", yes: "Drop it", kind: "bad", says: "Missed scheduled times that still wait for their run get the outcome MISSED.", fits: (job) => Number(job.status?.backlog) > 0 },
  DELETE: { call: "JobService/DeleteJob", word: "Delete…", title: "Delete", yes: "Delete", kind: "bad", says: "Runs under way are cancelled and its history is purged. This cannot be undone.", fits: () => true },
};

// {bar, form}: the buttons, and the question of the one that was chosen.
export function useJobActions({ job, again }) {
  const [asking, setAsking] = useState("");
  const close = () => setAsking("");
  const pick = (name) => (event) => {
    event.currentTarget.closest("details")?.removeAttribute("open");
    setAsking(name);
  };
  const open = Object.entries(SIMPLE).filter(([, one]) => can(one.call) && one.fits(job));
  const front = open.filter(([name]) => ["resume", "repair"].includes(name));
  const behind = open.filter((one) => !front.includes(one));
  const scheduled = (job.spec?.schedules ?? []).length > 0;
  const simple = SIMPLE[asking];
  const bar = html`
    ${front.map(([name, one]) => html`<${Button} kind="main" onClick=${pick(name)}>${one.word}</${Button}>`)}
    ${can("JobService/TriggerJob") ? html`<${Button} onClick=${pick("run")}>Run now…</${Button}>` : ""}
    ${can("JobService/PauseJob") && job.status?.state === "STATE_ACTIVE" ? html`<${Button} onClick=${pick("pause")}>Pause…</${Button}>` : ""}
    ${can("JobService/UpdateJob") ? html`<a class="button" href=${link(["/jobs", job.name, "edit"])}>Edit</a>` : ""}
    <details class="menu"><summary class="button">More</summary><div>
      ${can("JobService/CreateJob") ? html`<a href=${link("/new-job", { from: job.name })}>Copy as a new job</a>` : ""}
      ${can("JobService/BackfillJob") && scheduled ? html`<button type="button" onClick=${pick("backfill")}>Backfill…</button>` : ""}
      ${behind.map(([name, one]) => html`<button type="button" class=${one.kind ?? ""} onClick=${pick(name)}>${one.word}</button>`)}
      <a href=${link("/runs", { q: `job=${job.name}` })}>Runs under way</a></div></details>`;
  const form = html`
    ${asking === "run" ? html`<${RunNow} job=${job} close=${close} />` : ""}
    ${asking === "pause" ? html`<${Pause} job=${job} close=${close} again=${again} />` : ""}
    ${asking === "backfill" ? html`<${Backfill} job=${job} close=${close} again=${again} />` : ""}
    ${simple ? html`<${Simple} key=${asking} ...${simple} verb=${asking} title=${`${simple.title} ${job.name}`} job=${job} close=${close} again=${again} />` : ""}`;
  return { bar, form };
}
