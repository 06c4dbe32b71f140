// A new job, or a change of one: a form for what is common, text for all. What the API thinks of it
// (next times, warnings, faults) is asked while somebody types.
import { post, read, write } from "../lib/api.js";
import { html, useEffect, useMemo, useRef, useState } from "../lib/dom.js";
import { clockZone, changes, fresh, fromText, readable, toYaml } from "../lib/specs.js";
import { useAsked } from "../lib/load.js";
import { go, link, namespace, setParams, useParams } from "../lib/route.js";
import { can } from "../lib/session.js";
import { AtClockChanges, Button, Nexts } from "../components/bits.js";
import { Area, Text } from "../components/fields.js";
import { JobForm } from "../components/jobform.js";
import { Asked, Failed } from "../components/notes.js";
import { Shape } from "../components/state.js";

const TYPING_MS = 350;
const NEXT = 6;
const WORKERS_MAX = 200;
const pathOf = (name) => `/v1/jobs/${encodeURIComponent(name)}`;

// Create or change, or with `validateOnly` what would come of it.
function send(job, existing, validateOnly, signal) {
  const body = { namespace: namespace(), name: job.name, spec: job.spec };
  const query = validateOnly ? { validateOnly: true } : {};
  if (!existing) return write("POST", "/v1/jobs", { body, query, signal });
  return write("PATCH", pathOf(existing.name), { body, query: { ...query, updateMask: "spec" }, etag: existing.etag, signal });
}

// What the API says of what is typed: {next, checked, error}, a moment after the last change.
function useChecked(job, existing) {
  const [state, setState] = useState({ next: null, checked: null, error: null });
  const key = JSON.stringify(job);
  useEffect(() => {
    const abort = new AbortController();
    const timer = setTimeout(async () => {
      const { schedules, timing } = job.spec ?? {};
      const preview = (schedules ?? []).length
        ? post("/v1/schedules:preview", { namespace: namespace(), job: job.name, schedules, timing, count: NEXT }, { signal: abort.signal }) : Promise.resolve(null);
      // Without a name there is nothing yet that could be right.
      const check = job.name ? send(job, existing, true, abort.signal) : Promise.resolve(null);
      const [next, checked] = await Promise.allSettled([preview, check]);
      if (abort.signal.aborted) return;
      setState({ next: next.value ?? null, checked: checked.value ?? null, error: checked.reason ?? next.reason ?? null });
    }, TYPING_MS);
    return () => (clearTimeout(timer), abort.abort());
  }, [key, existing?.etag]);
  return state;
}

function Beside({ job, existing, checked }) {
  const { next, error } = checked;
  const occurrences = next?.occurrences ?? [];
  const warnings = [...new Set([...(next?.warnings ?? []), ...(checked.checked?.status?.warnings ?? [])])];
  const changed = existing ? changes(readable(existing).spec, readable(job).spec) : [];
  return html`<aside class="page-part beside">
    <section class="card" aria-label="Next times"><header><h2>Next</h2><span>${clockZone(job.spec)}</span></header>
      ${next?.descriptions?.length ? html`<p>${next.descriptions.join("; ")}</p>` : ""}
      ${occurrences.length ? html`<${Nexts} occurrences=${occurrences} zone=${clockZone(job.spec)} />` : html`<p class="soft">${(job.spec?.schedules ?? []).length ? "No times: see what is wrong with the schedule." : "Without a schedule it runs manually."}</p>`}
      ${warnings.map((text) => html`<p class="state is-warn wrap"><${Shape} of="triangle" tone="warn" />${text}</p>`)}
    </section>
    ${occurrences.length ? html`<${AtClockChanges} occurrences=${occurrences} zone=${clockZone(job.spec)} about=${[job.spec?.schedules, job.spec?.timing]}
      ask=${(more, signal) => post("/v1/schedules:preview", { namespace: namespace(), job: job.name, schedules: job.spec.schedules, timing: job.spec.timing, ...more }, { signal })} />` : ""}
    ${changed.length ? html`<section class="card" aria-label="Changes"><header><h2>Changes</h2></header><ul class="lines">${changed.slice(0, 12).map((one) => html`<li><span class="grow"><code>${one.path}</code> ${brief(one.before)} → ${brief(one.after)}</span></li>`)}</ul></section>` : ""}
    ${error && job.name ? html`<${Failed} error=${error} />` : ""}
  </aside>`;
}

const brief = (value) => (value === undefined ? "nothing" : typeof value === "string" ? value : JSON.stringify(value));

// The text of a job; while it is none, what is wrong with it stands below.
function AsText({ job, give }) {
  const [text, setText] = useState(() => toYaml(job));
  const [wrong, setWrong] = useState("");
  const type = (typed) => {
    setText(typed);
    try {
      const made = fromText(typed);
      setWrong("");
      give({ ...job, name: made.name ?? job.name, spec: made.spec ?? {} });
    } catch (error) {
      setWrong(error.message);
    }
  };
  return html`<${Area} label="YAML or JSON" rows=${28} value=${text} put=${type} path="text" faults=${wrong ? [{ field: "text", description: wrong }] : []} help="As files of the command line have it; payloads as json or text." />`;
}

function Editor({ first, existing, handlers }) {
  const { as = "form" } = useParams();
  const [job, setJob] = useState(first);
  const [state, setState] = useState({ busy: false, error: null });
  const checked = useChecked(job, existing);
  const faults = useMemo(() => (state.error ?? (job.name ? checked.error : null))?.faults ?? [], [state.error, checked.error]);
  const left = useRef(false);
  const dirty = JSON.stringify(job) !== JSON.stringify(first);
  useEffect(() => {
    const warn = (event) => dirty && !left.current && event.preventDefault();
    addEventListener("beforeunload", warn);
    return () => removeEventListener("beforeunload", warn);
  }, [dirty]);
  const save = async (andRun) => {
    setState({ busy: true, error: null });
    try {
      const made = await send(job, existing, false);
      left.current = true;
      if (!andRun) return go(link(["/jobs", made.name]));
      const run = await post(`${pathOf(made.name)}:trigger`, { namespace: namespace(), force: true });
      return go(link(["/runs", run.id]));
    } catch (error) {
      setState({ busy: false, error });
      return scrollTo({ top: 0 });
    }
  };
  const give = (next) => (setJob(next), setState((before) => ({ ...before, error: null })));
  return html`
    <div class="page-head"><h1>${existing ? html`Edit <a href=${link(["/jobs", existing.name])}>${existing.name}</a>` : "New job"}</h1><span class="grow"></span>
      <div class="chips">${[["form", "Form"], ["text", "YAML"]].map(([name, word]) => html`<button type="button" class="chip" aria-pressed=${as === name} onClick=${() => setParams({ as: name === "form" ? "" : name }, true)}>${word}</button>`)}</div></div>
    ${state.error ? html`<${Failed} error=${state.error} />` : ""}
    <form class="editor" onSubmit=${(event) => (event.preventDefault(), save(false))}>
      <div class="form">
        ${existing || as === "text" ? "" : html`<${Text} label="Name" value=${job.name} put=${(name) => give({ ...job, name })} path="name" faults=${faults} placeholder="nightly-report" help="Small letters, digits, - and _; it cannot be changed later." />`}
        ${as === "text" ? html`<${AsText} job=${job} give=${give} />` : html`<${JobForm} job=${job} give=${give} faults=${faults} handlers=${handlers} />`}
        <div class="bar">
          <${Button} type="submit" kind="main" disabled=${state.busy || !job.name || (existing && !dirty)}>${state.busy ? "Working…" : existing ? "Save the change" : "Create the job"}</${Button}>
          ${can("JobService/TriggerJob") ? html`<${Button} onClick=${() => save(true)} disabled=${state.busy || !job.name}>${existing ? "Save and run once" : "Create and run once"}</${Button}>` : ""}
          <a class="button" href=${existing ? link(["/jobs", existing.name]) : link("/jobs")}>Leave it</a>
        </div>
      </div>
      <${Beside} job=${job} existing=${existing} checked=${checked} />
    </form>`;
}

async function ask(name, from, signal) {
  const about = { namespace: namespace() };
  const [job, workers] = await Promise.all([
    name || from ? read(pathOf(name || from), about, { signal }) : null,
    read("/v1/workers", { ...about, pageSize: WORKERS_MAX }, { signal }).catch(() => ({})), // Only a help to type.
  ]);
  const handlers = [...new Set((workers.workers ?? []).flatMap((one) => one.handlers ?? []))].sort();
  return { job, handlers, ageMs: null };
}

export function Page({ job: name }) {
  const { from } = useParams();
  const asked = useAsked((signal) => ask(name, from, signal), `${namespace()} ${name} ${from}`);
  return html`<div class="page"><${Asked} asked=${asked} what="job">${({ job, handlers }) => html`<${Editor} first=${name ? { name, spec: job.spec } : from ? { name: `${from}-copy`, spec: job.spec } : fresh()} existing=${name ? job : null} handlers=${handlers} />`}</${Asked}></div>`;
}
