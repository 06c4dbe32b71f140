// Namespaces with their quotas, calendars, and alerts.
import { read, write } from "../lib/api.js";
import { html } from "../lib/dom.js";
import { bytes, many, number } from "../lib/format.js";
import { conditionOf, CONDITIONS, conditionWords, formOf, lineOf, linesOf, rulesOf } from "../lib/kept.js";
import { link, namespace, setParams, useParams } from "../lib/route.js";
import { boundTo, can } from "../lib/session.js";
import { durationMs, durationOf, length, lengthTyped, typedLength } from "../lib/time.js";
import { Meter, Time } from "./bits.js";
import { Choice } from "./fields.js";
import { at, Edit, Kept, Lines, NUMBER, Texts, useForm, whole } from "./kept.js";
import { Empty } from "./notes.js";
import { State } from "./state.js";

const BOUND_MAX = 20;
const QUOTAS = [["jobs", "Jobs"], ["liveRuns", "Runs under way"], ["leases", "Runs leased at once"], ["callsPerSecond", "Calls a second"], ["payloadBytes", "Bytes of payloads"]];
const KEEPS = [["keepSucceeded", "Keep runs that ended well", "7d"], ["keepFailed", "Keep dead letters", "30d"], ["keepLedger", "Keep the ledger", "90d"], ["keepAudit", "Keep the audit log", "1y"]];
const NUMBERS = [["weight", "Share of busy workers", "100"], ["backlogRate", "Missed times that run a second", "1,000"]];
const snake = (name) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
const own = () => namespace() || "default";
const soft = (text) => html`<span class="soft">${text}</span>`;

// Who is bound to some namespaces sees these alone.
const askBound = async (_, signal) => {
  const rows = await Promise.all(boundTo().slice(0, BOUND_MAX).map((name) => read(at("/v1/namespaces", name), {}, { signal })));
  return { rows, ageMs: rows[0]?.ageMs };
};

const Used = ({ used = 0, quota, as = number }) => html`<span class="busy">${as(Number(used))}${Number(quota) ? html`${soft(`of ${as(Number(quota))}`)}<${Meter} part=${Number(used)} whole=${Number(quota)} title="used of the quota" />` : ""}</span>`;
const nsLink = (path, one) => link(path, { ns: one.name === "default" ? "" : one.name });
const used = (name, title, as, lesser = false) => ({ name, title, lesser, cell: (one) => html`<${Used} used=${one.usage?.[name]} quota=${one.quota?.[name]} as=${as} />` });

const NAMESPACE_COLUMNS = [
  { name: "name", title: "Namespace", kind: "cut", cell: (one) => html`<a class="key" href=${nsLink("/jobs", one)} title=${one.description || one.name}>${one.name}</a>` },
  used("jobs", "Jobs"), used("liveRuns", "Under way"), used("leases", "Leased", number, true), used("payloadBytes", "Payloads", bytes, true),
  { name: "dead", title: "Dead letters", num: true, cell: (one) => html`<a href=${nsLink("/dead", one)}>${number(one.usage?.deadLetters)}</a>` },
  { name: "calls", title: "Calls / s", lesser: true, num: true, cell: (one) => (one.quota?.callsPerSecond ? number(one.quota.callsPerSecond) : soft("no limit")) },
  { name: "share", title: "Share", lesser: true, num: true, cell: (one) => number(one.weight || 100) },
  ...KEEPS.map(([name, title, usual], place) => ({ name, title: title.replace("Keep ", "Keeps "), lesser: true, hidden: place > 1, cell: (one) => (one[name] ? lengthTyped(durationMs(one[name])) : soft(usual)) })),
];

function NamespaceForm({ of, close, done }) {
  const [form, put] = useForm(Object.fromEntries([
    ["name", of?.name ?? ""], ["description", of?.description ?? ""], ...QUOTAS.map(([name]) => [name, Number(of?.quota?.[name]) ? String(of.quota[name]) : ""]),
    ...KEEPS.map(([name]) => [name, of?.[name] ? lengthTyped(durationMs(of[name])) : ""]), ...NUMBERS.map(([name]) => [name, of?.[name] ? String(of[name]) : ""]),
  ]));
  const span = (name) => !form[name] || typedLength(form[name]) !== undefined;
  const ready = form.name && [...QUOTAS, ...NUMBERS].every(([name]) => whole(form[name])) && KEEPS.every(([name]) => span(name));
  const act = async () => {
    const kept = KEEPS.filter(([name]) => form[name]).map(([name]) => [name, durationOf(typedLength(form[name]))]);
    const body = {
      name: form.name, description: form.description, quota: Object.fromEntries(QUOTAS.map(([name]) => [name, form[name] || "0"])),
      ...Object.fromEntries(kept), ...Object.fromEntries(NUMBERS.map(([name]) => [name, Number(form[name] || 0)])),
    };
    const mask = ["description", "quota", ...[...KEEPS, ...NUMBERS].map(([name]) => snake(name))].join();
    done(await (of ? write("PATCH", at("/v1/namespaces", of.name), { body, query: { updateMask: mask }, etag: of.etag }) : write("POST", "/v1/namespaces", { body })));
  };
  return html`<${Edit} what="namespace" of=${of} act=${act} close=${close} ready=${ready}><div class="trio"><${Texts} form=${form} put=${put} fields=${[
    ...(of ? [] : [["name", "Name", "", "billing"]]), ["description", "Description"],
    ...QUOTAS.map(([name, word]) => [name, word, "at most; empty: no limit", "", whole(form[name]) ? "" : NUMBER]),
    ...KEEPS.map(([name, word, usual]) => [name, word, `90d, 12h; empty: ${usual}`, "", span(name) ? "" : "a length such as 90d or 12h"]),
    ...NUMBERS.map(([name, word, usual]) => [name, word, `empty: ${usual}`, "", whole(form[name], 9) ? "" : NUMBER]),
  ]} /></div></${Edit}>`;
}

export function Namespaces() {
  const [make, change, remove] = ["Create", "Update", "Delete"].map((verb) => `NamespaceService/${verb}Namespace`);
  const kind = { what: "namespace", path: "/v1/namespaces", rows: "namespaces", where: "", calls: { make, change, remove }, stays: (one) => one.name === "default", ...(boundTo().length ? { ask: askBound } : {}) };
  return html`<${Kept} kind=${kind} columns=${NAMESPACE_COLUMNS} Form=${NamespaceForm} choice intro=${soft("Tenants: owners of jobs, quotas and rights.")} none=""
    gone=${(one) => `Only an empty one can be deleted: it has ${many(one.usage?.jobs ?? 0, "job")} now.`} />`;
}

const DAYS_SHOWN = 6;
const days = (one) => {
  const lines = (one.rules ?? []).map(lineOf);
  return lines.slice(0, DAYS_SHOWN).join(", ") + (lines.length > DAYS_SHOWN ? ` and ${number(lines.length - DAYS_SHOWN)} more` : "");
};
const CALENDAR_COLUMNS = [
  { name: "name", title: "Calendar", kind: "cut", cell: (one) => html`<strong title=${one.description}>${one.name}</strong>` },
  { name: "days", title: "Days left out", kind: "rest", cell: (one) => html`<span title=${linesOf(one.rules)}>${days(one)}</span>` },
  { name: "zone", title: "Zone", lesser: true, cell: (one) => one.zone || soft("the job's") },
  { name: "jobs", title: "Jobs", num: true, cell: (one) => html`<a href=${link("/jobs", { q: `calendar=${one.name}` })}>${number(one.jobs)}</a>` },
  { name: "changed", title: "Changed", lesser: true, cell: (one) => html`<${Time} at=${one.updateTime} />` },
];

function CalendarForm({ of, close, done }) {
  const [form, put] = useForm({ name: of?.name ?? "", description: of?.description ?? "", zone: of?.zone ?? "", text: linesOf(of?.rules) });
  const { rules, wrong } = rulesOf(form.text);
  const act = async () => {
    const body = { namespace: namespace(), name: form.name, description: form.description, zone: form.zone, rules };
    done(await (of ? write("PATCH", at("/v1/calendars", of.name), { body, query: { updateMask: "description,rules,zone" }, etag: of.etag }) : write("POST", "/v1/calendars", { body })));
  };
  return html`<${Edit} what="calendar" of=${of} act=${act} close=${close} ready=${form.name && rules.length && !wrong}>
    ${of && Number(of.jobs) ? html`<p>${many(of.jobs, "job")} name it: what lies ahead of them follows the new days.</p>` : ""}
    <div class="trio"><${Texts} form=${form} put=${put} fields=${[...(of ? [] : [["name", "Name", "", "holidays"]]), ["description", "Description"], ["zone", "Zone", "in which its days begin and end; empty: that of each job", "Europe/Berlin"]]} /></div>
    <${Lines} label="Days, one on each line" help="2026-12-24, 12-25 for each year, sat, or 2026-12-24..2027-01-01" wrong=${wrong} value=${form.text} put=${put("text")} rows=${8} /></${Edit}>`;
}

export function Calendars() {
  const [make, change, remove] = ["Create", "Update", "Delete"].map((verb) => `CalendarService/${verb}Calendar`);
  const kind = { what: "calendar", path: "/v1/calendars", rows: "calendars", query: { namespace: namespace() }, calls: { make, change, remove }, change: (event) => event.calendar && { id: event.calendar } };
  return html`<${Kept} kind=${kind} columns=${CALENDAR_COLUMNS} Form=${CalendarForm} intro=${soft("A scheduled time on a day of a calendar that the job names is left out, and its ledger says so.")}
    gone=${(one) => (Number(one.jobs) ? `${many(one.jobs, "job")} name it, so it stays until they do not.` : "No job names it.")}
    none=${html`<${Empty} title="No calendars yet"><p>Bank holidays, closing days: make one and name it in jobs, also by <code>raftsched calendar create holidays --yearly 12-25</code>.</p></${Empty}>`} />`;
}

const RAISED = new Set(["EVENT_KIND_ALERT_RAISED", "EVENT_KIND_ALERT_CLEARED"]);
const ALERT_COLUMNS = [
  { name: "name", title: "Alert", kind: "cut", cell: (one) => html`<strong>${one.name}</strong>` },
  { name: "state", title: "State", cell: (one) => (one.raisedTime ? html`<${State} state="FIRING" word="raised" /> <${Time} at=${one.raisedTime} />` : html`<${State} state="QUIET" />`) },
  { name: "when", title: "When", kind: "rest", cell: (one) => conditionWords(one.condition) },
  { name: "hold", title: "For at least", lesser: true, cell: (one) => (durationMs(one.hold) ? length(durationMs(one.hold), true) : soft("at once")) },
  { name: "webhook", title: "Calls", lesser: true, kind: "cut", cell: (one) => one.webhook || soft("nobody: event and metric alone") },
];

const alertForm = (where) => function Form({ of, close, done }) {
  const [form, put] = useForm({ name: of?.name ?? "", hold: of?.hold ? lengthTyped(durationMs(of.hold)) : "", webhook: of?.webhook ?? "", ...formOf(of?.condition) });
  const one = CONDITIONS.find((found) => found.name === form.kind);
  const condition = conditionOf(form);
  const hold = form.hold ? typedLength(form.hold) : 0;
  const act = async () => {
    const body = { namespace: where, name: form.name, condition, webhook: form.webhook, ...(hold ? { hold: durationOf(hold) } : {}) };
    done(await write("PUT", at("/v1/alerts", form.name), { body, etag: of?.etag }));
  };
  const value = one.kind === "flag" ? [] : [["value", one.kind === "length" ? "How long" : "How many", one.kind === "length" ? "30s, 5m" : NUMBER]];
  return html`<${Edit} what="alert" of=${of} act=${act} close=${close} ready=${form.name && condition && hold !== undefined}>
    <div class="trio"><${Choice} label="When" value=${form.kind} put=${put("kind")} options=${CONDITIONS.filter((found) => !where || !found.whole).map((found) => [found.name, found.says])} />
      <${Texts} form=${form} put=${put} fields=${[...(of ? [] : [["name", "Name", "", "stuck"]]), ...(one.kind === "workers" ? [["queue", "Queue", "", "mail"]] : []), ...value,
        ["hold", "It holds for at least", "empty: at once", "5m", hold === undefined ? "a length such as 5m" : ""], ["webhook", "Call this address", "by POST, when it is raised and when it is over; empty: nobody", "https://example.org/hook"]]} /></div></${Edit}>`;
};
const FORMS = new Map();

export function Alerts() {
  const { whose } = useParams();
  const bound = !can("AlertService/ListAlerts", "");
  const where = whose === "cluster" && !bound ? "" : own();
  if (!FORMS.has(where)) FORMS.set(where, alertForm(where));
  const put = "AlertService/PutAlert";
  const kind = { what: "alert", path: "/v1/alerts", rows: "alerts", query: { namespace: where }, where, calls: { make: put, change: put, remove: "AlertService/DeleteAlert" }, change: (event) => RAISED.has(event.kind) && { id: event.alert } };
  const chip = (word, value) => html`<button type="button" class="chip" aria-pressed=${(value === "cluster") === (where === "")} onClick=${() => setParams({ whose: value, at: "" })}>${word}</button>`;
  return html`<${Kept} key=${where} kind=${kind} columns=${ALERT_COLUMNS} Form=${FORMS.get(where)} intro=${bound ? "" : html`<div class="chips" role="group" aria-label="Whose">${chip(`Of ${own()}`, "")}${chip("Of the cluster", "cluster")}</div>`}
    gone=${(one) => `Nobody is notified of this any more: ${conditionWords(one.condition)}.`}
    none=${html`<${Empty} title="No alerts yet"><p>Be called when dead letters pile up, runs wait too long or workers are missing; also by <code>raftsched alert put stuck --lateness-above 5m</code>.</p></${Empty}>`} />`;
}
