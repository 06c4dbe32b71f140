// What a job was before, and what each change changed.
import { html } from "../lib/dom.js";
import { changes, lines } from "../lib/diff.js";
import { words } from "../lib/format.js";
import { useLiveAsked } from "../lib/load.js";
import { namespace, setParams, useParams } from "../lib/route.js";
import { readable, toYaml } from "../lib/spectext.js";
import { versionsOf } from "../lib/versions.js";
import { Time } from "./bits.js";
import { Asked, Empty } from "./notes.js";

const JOB_EVENTS = new Set(["EVENT_KIND_JOB_CREATED", "EVENT_KIND_JOB_UPDATED", "EVENT_KIND_JOB_PAUSED", "EVENT_KIND_JOB_RESUMED", "EVENT_KIND_JOB_REPAIRED"]);
const AROUND = 3;

const brief = (value) => (value === undefined ? "nothing" : typeof value === "string" ? value : JSON.stringify(value));

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
    if (!versions.length) return html`<${Empty} title="No change is kept"><p>This is version ${job.version}. What was before is known as long as events are kept, and those of its changes are gone.</p></${Empty}>`;
    return html`<ul class="lines card">${versions.map((one, at) => {
      const before = versions[at + 1]?.job;
      const found = before ? changes(readable(before).spec, readable(one.job).spec) : [];
      const open = version === String(one.job.version);
      return html`<li key=${`${one.job.version} ${one.kind}`} class="version"><strong>Version ${one.job.version}</strong><span>${words(one.kind).replace("job ", "")} <${Time} at=${one.time} /></span>
        <span class="grow">${found.slice(0, 3).map((change) => html`<span><code>${change.path}</code> ${brief(change.before)} → ${brief(change.after)} </span>`)}${found.length > 3 ? `and ${found.length - 3} more` : ""}</span>
        ${before && found.length ? html`<button type="button" class="button plain" aria-expanded=${open} onClick=${() => setParams({ version: open ? "" : one.job.version }, true)}>${open ? "close" : "difference"}</button>` : ""}
        ${open && before ? html`<${Difference} before=${before} after=${one.job} />` : ""}</li>`;
    })}</ul>${more ? html`<p class="soft">Older events are kept and were not looked at.</p>` : ""}`;
  }}</${Asked}>`;
}
