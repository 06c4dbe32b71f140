// The spec of a job: what is set, as pairs a person reads, and the whole as YAML or JSON.
import { read } from "../lib/api.js";
import { html } from "../lib/dom.js";
import { payloadText, plain, words } from "../lib/format.js";
import { useLiveAsked } from "../lib/load.js";
import { link, namespace, setParams, useParams } from "../lib/route.js";
import { can } from "../lib/session.js";
import { action, changes, lines, queueOf, readable, toJson, toYaml, written } from "../lib/specs.js";
import { durationMs, length } from "../lib/time.js";
import { Copy, Labels, Time } from "./bits.js";
import { Asked, Empty } from "./notes.js";

const long = (text) => (text ? length(durationMs(text), true) : "");
const FORMS = [["", "In words"], ["yaml", "YAML"], ["json", "JSON"]];

function retries({ maxAttempts, first, factorPercent, cap } = {}) {
  if (maxAttempts === 1) return "none";
  const tries = maxAttempts || 4;
  return `${tries} tries; waits ${long(first) || "5 s"}, then ${((factorPercent || 200) / 100).toLocaleString("en-US")} times as long each, at most ${long(cap) || "10 min"}`;
}

function Pairs({ spec = {} }) {
  const { timing = {}, timeouts = {}, concurrency = {} } = spec;
  const limits = [["queue", "in the queue"], ["attempt", "an attempt"], ["run", "in all"], ["heartbeat", "without a word"]].filter(([name]) => timeouts[name]);
  const payload = payloadText(spec.payload);
  const rows = [
    ["Does", html`<code>${action(spec)}</code>`], ["When", written(spec).join("; ")], ["Zone", timing.zone || "UTC"],
    timing.startTime && ["Not before", html`<${Time} at=${timing.startTime} as="both" />`], timing.endTime && ["Not after", html`<${Time} at=${timing.endTime} as="both" />`],
    timing.jitter && ["Spread", `up to ${long(timing.jitter)} later, always the same for this job`], timing.excludeCalendars?.length && ["Leaves out", timing.excludeCalendars.join(", ")],
    timing.maxRuns && ["At most", `${timing.maxRuns} times`],
    ["Payload", payload.text ? html`<pre class="text" tabindex="0">${payload.text}</pre>` : html`<span class="soft">${payload.note}</span>`],
    ["Queue", queueOf(spec)], ["Priority", words(spec.priority) || "medium"], ["Retries", retries(spec.retry)],
    ["Missed times", words(spec.misfire?.rule) || "latest"], ["Overlap", words(spec.overlap?.rule) || ((spec.schedules ?? []).length ? "skip" : "allow")],
    limits.length && ["Gives up after", limits.map(([name, word]) => `${long(timeouts[name])} ${word}`).join(", ")],
    (concurrency.job || concurrency.key) && ["At once", [concurrency.job && `${concurrency.job} of this job`, concurrency.key && `${concurrency.keyLimit} of ${concurrency.key}`].filter(Boolean).join(", ")],
    spec.delivery && ["Delivery", words(spec.delivery)], spec.workerLabels && ["Workers", html`<${Labels} labels=${spec.workerLabels} />`],
    spec.onFailure?.job && ["When it failed", html`<a href=${link(["/jobs", spec.onFailure.job])}>${spec.onFailure.job}</a> is triggered`],
    spec.pauseOnFailure && ["Pauses itself", `after ${spec.pauseOnFailure} failures in a row`], spec.keepHistory && ["History", `kept ${long(spec.keepHistory)}`],
    spec.labels && ["Labels", html`<${Labels} labels=${spec.labels} />`], spec.owner && ["Owner", spec.owner],
  ].filter(Boolean);
  return html`<dl class="pairs">${rows.map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>`;
}

export function Spec({ job }) {
  const { form = "" } = useParams();
  const text = form === "yaml" ? toYaml(job) : form === "json" ? toJson(job) : "";
  return html`<section class="card" aria-label="Spec"><header><h2>Version ${job.version}</h2><span>since <${Time} at=${job.updateTime} />${job.creator ? `, made by ${job.creator}` : ""}</span><span class="grow"></span>
      <div class="chips">${FORMS.map(([name, word]) => html`<button type="button" class="chip" aria-pressed=${form === name} onClick=${() => setParams({ form: name }, true)}>${word}</button>`)}</div></header>
    ${text ? html`<pre class="text" tabindex="0">${text}</pre><${Copy} text=${text} kind="soft small">copy</${Copy}>` : html`<${Pairs} spec=${job.spec} />`}</section>`;
}

// What a job was before, and what each change changed.

const JOB_EVENTS = new Set(["EVENT_KIND_JOB_CREATED", "EVENT_KIND_JOB_UPDATED", "EVENT_KIND_JOB_PAUSED", "EVENT_KIND_JOB_RESUMED", "EVENT_KIND_JOB_REPAIRED"]);
const AROUND = 3;
const AUDIT = "AccessService/ListAuditRecords";
const AUDIT_MAX = 200;

const brief = (value) => (value === undefined ? "nothing" : typeof value === "string" ? value : Array.isArray(value) && value.every((one) => one?.cron) ? value.map((one) => one.cron.expression).join("; ") : JSON.stringify(value));

// Equal lines far from a difference are left out.
function near(all) {
  const shown = new Set();
  all.forEach(([sign], at) => sign !== " " && all.forEach((_, other) => Math.abs(other - at) <= AROUND && shown.add(other)));
  return all.map((line, at) => (shown.has(at) ? line : null)).filter((line, at, kept) => line || kept[at - 1]);
}

function Difference({ before, after }) {
  const all = near(lines(toYaml(before), toYaml(after)));
  return html`<pre class="text diff" tabindex="0">${all.map((line) => (line ? html`<span class=${line[0] === "+" ? "is-ok" : line[0] === "-" ? "is-bad" : ""}>${line[0]} ${line[1]}\n</span>` : html`<span class="soft">…\n</span>`))}</pre>`;
}

export function Versions({ job }) {
  const { version } = useParams();
  const asked = useLiveAsked((signal) => versionsOf(namespace(), job.name, job.uid, signal), `${namespace()} ${job.name} ${job.uid}`, (event) => event.job === job.name && JOB_EVENTS.has(event.kind));
  return html`<${Asked} asked=${asked} what="versions" rows=${3}>${({ versions, more }) => {
    const audit = can(AUDIT) ? html`<p><a href=${link(["/settings", "audit"], { q: `subject="job/${job.name}"` })}>All that was done to it</a> <span class="soft">stands in the audit log, with who did it.</span></p>` : "";
    if (!versions.length) return html`${audit}<${Empty} title="No change is kept"><p>This is version ${job.version}. What was before is known as long as events are kept, and those of its changes are gone.</p></${Empty}>`;
    return html`${audit}<ul class="lines card">${versions.map((one, at) => {
      const before = versions[at + 1]?.job;
      const found = before ? changes(readable(before).spec, readable(one.job).spec) : [];
      const open = version === String(one.job.version);
      return html`<li key=${`${one.job.version} ${one.kind}`} class="version"><strong>Version ${one.job.version}</strong><span>${words(one.kind).replace("job ", "")} <${Time} at=${one.time} />${one.who ? html` by <strong>${one.who}</strong>` : ""}</span>
        <span class="grow">${found.slice(0, 3).map((change) => html`<span><code>${change.path}</code> ${brief(change.before)} → ${brief(change.after)} </span>`)}${found.length > 3 ? `and ${found.length - 3} more` : ""}</span>
        ${before && found.length ? html`<button type="button" class="button plain" aria-expanded=${open} onClick=${() => setParams({ version: open ? "" : one.job.version }, true)}>${open ? "close" : "difference"}</button>` : ""}
        ${open && before ? html`<${Difference} before=${before} after=${one.job} />` : ""}</li>`;
    })}</ul>${more ? html`<p class="soft">Older events are kept and were not looked at.</p>` : ""}`;
  }}</${Asked}>`;
}

// What a job was before: its events hold the whole job after each change, as far back as events are
// kept. In steps, so that nothing is asked without an end.

const PAGES_MAX = 20;

// {versions: [{job, kind, time}], newest first; more: older events were not looked at all}
export async function versionsOf(namespace, name, uid, signal) {
  const filter = `job=${name} AND (${[...JOB_EVENTS].map((kind) => `kind=${plain(kind)}`).join(" OR ")})`;
  const found = [];
  let after;
  let end = false;
  for (let page = 0; page < PAGES_MAX && !end; page += 1) {
    const answer = await read("/v1/events", { namespace, filter, pageSize: 1_000, after }, { signal });
    for (const event of answer.events ?? []) {
      if (event.jobAfter && event.jobAfter.uid === uid) found.push({ job: event.jobAfter, kind: event.kind, time: event.time, change: event.revision?.change });
    }
    after = answer.progress;
    end = answer.end ?? false;
  }
  const who = found.length && can(AUDIT) ? await actors(namespace, name, signal) : new Map();
  return { versions: found.reverse().map((one) => ({ ...one, who: who.get(one.change) })), more: !end };
}

// Who made each change of a job, by the change, as the newest records of the audit log have it.
async function actors(namespace, name, signal) {
  const { records = [] } = await read("/v1/audit", { namespace: namespace || "default", filter: `subject="job/${name}"`, pageSize: AUDIT_MAX }, { signal });
  return new Map(records.map((record) => [record.revision?.change, record.actor]));
}
