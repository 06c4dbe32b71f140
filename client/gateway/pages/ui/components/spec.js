// The spec of a job: what is set, as pairs a person reads, and the whole as YAML or JSON.
import { html } from "../lib/dom.js";
import { payloadText, words } from "../lib/format.js";
import { link, setParams, useParams } from "../lib/route.js";
import { action, queueOf, written } from "../lib/specs.js";
import { toJson, toYaml } from "../lib/spectext.js";
import { durationMs, length } from "../lib/time.js";
import { Copy, Labels, Time } from "./bits.js";

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
