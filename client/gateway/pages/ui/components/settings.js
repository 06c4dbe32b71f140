// The parts of Settings: namespaces, calendars, alerts; access tokens, identity providers, secrets,
// and the audit log.
import { answers, post, read, write } from "../lib/api.js";
import { html, useEffect, useState } from "../lib/dom.js";
import { bytes, many, number, words } from "../lib/format.js";
import { conditionOf, CONDITIONS, conditionWords, formOf, lineOf, linesOf, rulesOf } from "../lib/kept.js";
import { useList } from "../lib/list.js";
import { link, namespace, setParams, useParams } from "../lib/route.js";
import { boundTo, can, learnWhoWeAre, session } from "../lib/session.js";
import { durationMs, durationOf, length, lengthTyped, typedLength } from "../lib/time.js";
import { Ask } from "./ask.js";
import { Button, Copy, Id, Labels, Meter, Time } from "./bits.js";
import { Area, Check, Choice, Text } from "./fields.js";
import { Empty } from "./notes.js";
import { filterOf, Search } from "./search.js";
import { signIn } from "./signin.js";
import { State } from "./state.js";
import { Columns, List } from "./table.js";

// Each is a list of small things that are made, changed and deleted in one place.
const at = (path, name) => `${path}/${encodeURIComponent(name)}`;

// `kind`: {what, path, rows, query, calls: {make, change, remove}, where (of `can`), change (by
// events), ask (in place of path and rows), verb (of the second button)}. `columns`: without the
// buttons, which are put behind them. `Form({of, close, done})`; `gone(one)`: what a deletion means.
function Kept({ kind, columns, Form, gone, intro, none, choice = false, more = "" }) {
  const ask = async ({ pageSize, pageToken }, signal) => {
    const found = await read(kind.path, { ...kind.query, pageSize, pageToken }, { signal });
    return { ...found, rows: found[kind.rows] ?? [] };
  };
  const idOf = (one) => one.name;
  const list = useList({ name: `${kind.what} ${JSON.stringify(kind.query)}`, ask: kind.ask ?? ask, idOf, change: kind.change ?? (() => null) });
  const [asking, setAsking] = useState(null);
  const [made, setMade] = useState(null);
  const may = (call) => call && can(call, kind.where);
  const begin = (next) => (setMade(null), setAsking(next));
  const close = () => setAsking(null);
  const done = (answer) => (setMade(answer), list.again());
  const remove = async () => (await write("DELETE", at(kind.path, asking.gone.name), { query: kind.query, etag: asking.gone.etag }), list.again());
  const removing = kind.verb ?? "Delete";
  const acts = { name: "acts", title: "", num: true, cell: (one) => html`<span class="bar tight">
    ${may(kind.calls.change) ? html`<${Button} onClick=${() => begin({ of: one })}>${kind.changing ?? "Change"}…</${Button}>` : ""}
    ${may(kind.calls.remove) && !kind.stays?.(one) ? html`<${Button} kind="bad" onClick=${() => begin({ gone: one })}>${removing}…</${Button}>` : ""}</span>` };
  return html`
    <div class="bar">${intro}<span class="grow"></span>
      ${may(kind.calls.make) ? html`<${Button} kind="main" onClick=${() => begin({})}>New ${kind.what}</${Button}>` : ""}${choice ? html`<${Columns} columns=${columns} />` : ""}</div>
    ${typeof more === "function" ? more(made, () => setMade(null)) : more}
    ${asking?.gone ? html`<${Ask} key="gone" title=${`${removing} the ${kind.what} ${asking.gone.name}`} yes="${removing} it" kind="bad" act=${remove} close=${close}><p>${gone(asking.gone)}</p></${Ask}>`
      : asking ? html`<${Form} key=${asking.of?.name ?? ""} of=${asking.of} rows=${list.rows} close=${close} done=${done} />` : ""}
    <${List} list=${{ ...list, q: "" }} columns=${[...columns, acts]} idOf=${idOf} label=${`${kind.what}s`} none=${none} />`;
}

// A form as one value, with a setter for each of its fields.
function useForm(first) {
  const [form, setForm] = useState(first);
  return [form, (name) => (value) => setForm((before) => ({ ...before, [name]: value }))];
}

function Edit({ what, of, act, close, ready, children }) {
  return html`<${Ask} title=${of ? `Change the ${what} ${of.name}` : `A new ${what}`} yes=${of ? "Keep it" : "Make it"} act=${act} close=${close} ready=${ready}>${children}</${Ask}>`;
}

// Fields beside each other: [name, label, help, placeholder, wrong].
const Texts = ({ form, put, fields }) => fields.map(([name, label, help, placeholder, wrong]) => html`<${Text} key=${name} label=${label} help=${help} placeholder=${placeholder} value=${form[name]} put=${put(name)} ...${faulty(wrong)} />`);
const Lines = ({ wrong, ...rest }) => html`<${Area} ...${rest} ...${faulty(wrong)} />`;
const faulty = (wrong) => (wrong ? { path: "typed", faults: [{ field: "typed", description: wrong }] } : {});
const whole = (text, digits = 15) => new RegExp(`^\\d{0,${digits}}$`).test(text);
const NUMBER = "a whole number";

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
  used("jobs", "Jobs"), used("liveRuns", "Under way"), { ...used("leases", "Leased", number, true), hidden: true }, { ...used("payloadBytes", "Payloads", bytes, true), hidden: true },
  { name: "dead", title: "Dead letters", num: true, cell: (one) => html`<a href=${nsLink("/dead", one)}>${number(one.usage?.deadLetters)}</a>` },
  { name: "calls", title: "Calls / s", lesser: true, num: true, cell: (one) => (one.quota?.callsPerSecond ? number(one.quota.callsPerSecond) : soft("no limit")) },
  { name: "share", title: "Share", lesser: true, hidden: true, num: true, cell: (one) => number(one.weight || 100) },
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

const ROLES = [["ROLE_VIEWER", "viewer: looks"], ["ROLE_WORKER", "worker: pulls runs"], ["ROLE_EDITOR", "editor: changes jobs"], ["ROLE_ADMIN", "admin: all"]];

const TOKEN_COLUMNS = [
  { name: "name", title: "Token", kind: "cut", cell: (one) => html`<strong>${one.name}</strong>` },
  { name: "role", title: "Role", cell: (one) => html`${words(one.role)}${one.seePayloads ? html` <span class="tag">sees payloads</span>` : ""}` },
  { name: "where", title: "Namespace", cell: (one) => one.namespace || soft("all") },
  { name: "expires", title: "Ends", cell: (one) => html`<${Time} at=${one.expireTime} empty="never" />` },
  { name: "calls", title: "Calls / s", lesser: true, num: true, cell: (one) => (one.callsPerSecond ? number(one.callsPerSecond) : soft("no limit")) },
  { name: "made", title: "Made", lesser: true, cell: (one) => html`<${Time} at=${one.createTime} />` },
  { name: "former", title: "Former secret opens until", lesser: true, cell: (one) => html`<${Time} at=${one.formerSecretExpireTime} />` },
];

function NewToken({ rows, close, done }) {
  const first = session.get().caller?.kind === "KIND_ANONYMOUS" && !rows?.length;
  const [form, put] = useForm({ name: "", role: first ? "ROLE_ADMIN" : "ROLE_VIEWER", where: "", payloads: false, expires: "", calls: "" });
  const lasts = form.expires ? typedLength(form.expires) : 0;
  const act = async () => {
    const body = { name: form.name, role: form.role, namespace: form.where, seePayloads: form.payloads, callsPerSecond: Number(form.calls || 0), ...(lasts ? { expireTime: new Date(Date.now() + lasts).toISOString() } : {}) };
    const made = await write("POST", "/v1/accessTokens", { body });
    done(made);
    // The cluster is closed now, and we go on as who we have just made; else one signs in with it.
    if (first) await signIn(made.secret).then(learnWhoWeAre).then(() => done(made), (error) => console.warn(error));
  };
  const fields = [["where", "Namespace", "empty: all of them, and the cluster", "billing"], ["expires", "It ends after", "empty: never", "90d", lasts === undefined ? "a length such as 90d" : ""], ["calls", "Calls a second", "empty: no limit", "", whole(form.calls, 6) ? "" : NUMBER]];
  return html`<${Edit} what="access token" act=${act} close=${close} ready=${form.name && lasts !== undefined && whole(form.calls, 6)}>
    ${first ? html`<p class="is-warn">It is the first one: from then on the cluster is closed to everybody who shows none, workers too. So it must be an admin's, for all namespaces and without an end.</p>` : ""}
    <div class="trio"><${Choice} label="Role" value=${form.role} put=${put("role")} options=${first ? ROLES.slice(3) : ROLES} />
      <${Texts} form=${form} put=${put} fields=${[["name", "Name", "", "ci"], ...(first ? [] : fields)]} />
      ${first ? "" : html`<${Check} label="A viewer sees payloads, results and logs" value=${form.payloads} put=${put("payloads")} />`}</div></${Edit}>`;
}

function Rotate({ of, close, done }) {
  const [form, put] = useForm({ overlap: "1h" });
  const size = typedLength(form.overlap);
  const act = async () => done(await post(`${at("/v1/accessTokens", of.name)}:rotate`, { overlap: durationOf(size) }));
  return html`<${Ask} title=${`Rotate the token ${of.name}`} yes="Give it another secret" act=${act} close=${close} ready=${size !== undefined}>
    <div class="trio"><${Texts} form=${form} put=${put} fields=${[["overlap", "The former secret opens for", "at most 30d; 0s: no longer"]]} /></div></${Ask}>`;
}

function TokenForm(given) {
  const done = (answer) => (answers.set({ secret: answer.secret ?? "" }), given.done(answer));
  return html`<${given.of ? Rotate : NewToken} ...${given} done=${done} />`;
}

export function Tokens() {
  const [make, change, remove] = ["Create", "Rotate", "Revoke"].map((verb) => `AccessService/${verb}AccessToken`);
  const kind = { what: "access token", path: "/v1/accessTokens", rows: "accessTokens", where: "", calls: { make, change, remove }, changing: "Rotate", verb: "Revoke" };
  useEffect(() => () => answers.set({ secret: "" }), []);
  const seen = (clear) => () => (clear(), answers.set({ secret: "" }), learnWhoWeAre());
  const secret = (made, clear) => (made?.secret ? html`<div class="note" data-is="ok" role="status"><h2>The secret of ${made.accessToken?.name}</h2><p><${Copy} text=${made.secret} kind="mono">${made.secret}</${Copy}></p>
    <p>Copy it now; nobody can show it again. Sent as <code>authorization: Bearer …</code>.</p><${Button} onClick=${seen(clear)}>I have it</${Button}></div>` : "");
  return html`<${Kept} kind=${kind} columns=${TOKEN_COLUMNS} Form=${TokenForm} more=${secret} intro=${soft("Only hashes are kept: a secret is shown once, when it is made.")}
    gone=${() => "It is not valid from now on; streams and calls that were opened with it end within ten seconds."}
    none=${html`<${Empty} title="No access tokens: the cluster is open"><p>Everybody who reaches it is an admin. The first token, an admin's, closes it: <code>raftsched token create root --role admin --all-namespaces</code>.</p></${Empty}>`} />`;
}

const EXAMPLE = { jwt: { issuer: "https://login.example.org", audiences: ["raftsched"] }, rules: [{ claims: [{ claim: ["groups"], values: ["ops"] }], role: "ROLE_EDITOR", namespace: "default" }] };

// "editor in billing if groups is ops".
function ruleWords(rule) {
  const claims = (rule.claims ?? []).map((one) => `${(one.claim ?? []).join(".")} is ${(one.values ?? []).join(" or ")}`);
  return `${words(rule.role)} in ${rule.namespace || "all namespaces"} if ${claims.join(" and ")}`;
}

const PROVIDER_COLUMNS = [
  { name: "name", title: "Provider", kind: "cut", cell: (one) => html`<strong>${one.name}</strong>` },
  { name: "issues", title: "Issues", kind: "cut", cell: (one) => (one.jwt ? html`<span title=${(one.jwt.audiences ?? []).join(", ")}>tokens of ${one.jwt.issuer}</span>` : "certificates of clients") },
  { name: "rules", title: "The first rule that fits counts", kind: "rest", cell: (one) => html`<span title=${(one.rules ?? []).map(ruleWords).join("\n")}>${one.rules?.length ? ruleWords(one.rules[0]) : "no rule: nobody gets in"}${one.rules?.length > 1 ? ` and ${many(one.rules.length - 1, "more rule")}` : ""}</span>` },
  { name: "made", title: "Made", lesser: true, cell: (one) => html`<${Time} at=${one.createTime} />` },
];

function parsed(text) {
  try {
    const value = JSON.parse(text);
    return value && typeof value === "object" && !Array.isArray(value) ? { value } : { wrong: "it must be an object: {…}" };
  } catch (fault) {
    return { wrong: fault.message };
  }
}

function ProviderForm({ of, close, done }) {
  const { name: _, createTime: __, etag, ...kept } = of ?? {};
  const [form, put] = useForm({ name: of?.name ?? "", text: JSON.stringify(of ? kept : EXAMPLE, null, 2) });
  const { value, wrong } = parsed(form.text);
  const act = async () => done(await write("PUT", at("/v1/identityProviders", form.name), { body: { ...value, name: form.name }, etag }));
  return html`<${Edit} what="identity provider" of=${of} act=${act} close=${close} ready=${form.name && !wrong}>
    ${of ? "" : html`<div class="trio"><${Texts} form=${form} put=${put} fields=${[["name", "Name", "", "corp"]]} /></div>`}
    <${Lines} label="Provider and rules, as the API has them" help="jwt with issuer and audiences, or certificates: {}; rules: claims, role, namespace, seePayloads, callsPerSecond" wrong=${wrong} value=${form.text} put=${put("text")} rows=${16} /></${Edit}>`;
}

export function Identities() {
  const put = "IdentityService/PutIdentityProvider";
  const kind = { what: "identity provider", path: "/v1/identityProviders", rows: "identityProviders", where: "", calls: { make: put, change: put, remove: "IdentityService/DeleteIdentityProvider" } };
  return html`<${Kept} kind=${kind} columns=${PROVIDER_COLUMNS} Form=${ProviderForm} gone=${() => "Whoever it vouched for is refused from now on; their streams end within ten seconds."}
    intro=${soft("Whoever shows a token of an issuer, or a client certificate, may do what the first rule that fits says. They are asked only while there are access tokens.")}
    none=${html`<${Empty} title="No identity providers"><p>Let people sign in by OpenID Connect, or programs by JSON Web Tokens or certificates; also by <code>raftsched identity put -f corp.yaml</code>.</p></${Empty}>`} />`;
}

const SECRET_COLUMNS = [
  { name: "name", title: "Secret", kind: "cut", cell: (one) => html`<strong>${one.name}</strong>` },
  { name: "use", title: "Jobs name it as", cell: (one) => html`<${Copy} text=${`secret://${one.name}`} kind="mono">secret://${one.name}</${Copy}>` },
  { name: "version", title: "Values so far", num: true, lesser: true, cell: (one) => number(one.valueVersion) },
  { name: "updated", title: "Present value since", cell: (one) => html`<${Time} at=${one.updateTime} />` },
  { name: "updater", title: "By", lesser: true, kind: "cut", cell: (one) => one.updater || soft("not known") },
  { name: "labels", title: "Labels", lesser: true, cell: (one) => html`<${Labels} labels=${one.labels} />` },
];

function SecretForm({ of, close, done }) {
  const [form, put] = useForm({ name: of?.name ?? "", value: "" });
  const act = async () => {
    const secret = { namespace: namespace(), labels: of?.labels ?? {}, etag: of?.etag ?? "" };
    done(await write("PUT", at("/v1/secrets", form.name), { body: { secret, value: form.value } }));
  };
  return html`<${Edit} what="secret" of=${of} act=${act} close=${close} ready=${form.name && form.value}>
    ${of ? html`<p>Runs under way get the new value with their next attempt.</p>` : html`<div class="trio"><${Texts} form=${form} put=${put} fields=${[["name", "Name", "", "api-key"]]} /></div>`}
    <${Lines} label="Value" help="encrypted before it is written anywhere; nobody can show it again" value=${form.value} put=${put("value")} rows=${3} /></${Edit}>`;
}

export function Secrets() {
  const put = "SecretService/PutSecret";
  const kind = { what: "secret", path: "/v1/secrets", rows: "secrets", query: { namespace: namespace() }, calls: { make: put, change: put, remove: "SecretService/DeleteSecret" }, changing: "New value" };
  return html`<${Kept} kind=${kind} columns=${SECRET_COLUMNS} Form=${SecretForm} intro=${soft("Passwords and keys for headers, metadata and environment of jobs, without standing in the job.")}
    gone=${() => "A secret that jobs name stays until they do not. Backups of before still have it, encrypted."}
    none=${html`<${Empty} title="No secrets yet"><p>Make one and write <code>Bearer secret://NAME</code> into a header of a job.</p></${Empty}>`} />`;
}

const AUDIT_FIELDS = {
  actor: { help: "who: the name of a token, or issuer#subject" }, method: { help: "the call: method=DeleteJob" },
  subject: { help: "what about: subject=job/report", sign: ":" }, time: { help: "time>2026-12-01T00:00:00Z", sign: ">" },
};
const PAGES = { job: "/jobs", run: "/runs", queue: "/queues", flow: "/flows" };
const revision = (record) => `${record.revision?.change}.${record.revision?.position ?? 0}`;
const subject = (record) => {
  const [kind, ...rest] = (record.subject ?? "").split("/");
  return PAGES[kind] && rest.length ? html`<a href=${link([PAGES[kind], rest.join("/")])}>${record.subject}</a>` : record.subject;
};
const AUDIT_COLUMNS = [
  { name: "time", title: "When", cell: (record) => html`<${Time} at=${record.time} />` },
  { name: "actor", title: "Who", kind: "cut", cell: (record) => record.actor || soft("not known") },
  { name: "method", title: "Did", cell: (record) => record.method },
  { name: "subject", title: "What", kind: "cut", cell: subject },
  { name: "change", title: "Change", kind: "rest", lesser: true, cell: (record) => html`<span title=${record.change}>${(record.change ?? "").replace(/\s+/g, " ")}</span>` },
  { name: "revision", title: "Revision", lesser: true, num: true, hidden: true, cell: revision },
  { name: "request", title: "Request", lesser: true, hidden: true, cell: (record) => record.requestId && html`<${Id} id=${record.requestId} most=${16} />` },
];

export function Audit() {
  const { whose } = useParams();
  const where = whose === "all" ? "" : own();
  const ask = async ({ filter, pageSize, pageToken }, signal) => {
    const found = await read("/v1/audit", { namespace: where, filter, pageSize, pageToken }, { signal });
    return { ...found, rows: found.records ?? [] };
  };
  const chip = (word, value) => html`<button type="button" class="chip" aria-pressed=${(value === "all") === (where === "")} onClick=${() => setParams({ whose: value, at: "" })}>${word}</button>`;
  const list = useList({ name: `audit of ${where}`, ask, idOf: revision, change: () => null, filter: (text) => filterOf(text, "subject") });
  return html`
    <div class="bar"><${Search} value=${list.q} put=${list.setFilter} fields=${AUDIT_FIELDS} placeholder="words in what it is about, or actor=ci" label="Filter the audit log" />
      <div class="chips" role="group" aria-label="Whose">${chip(`Of ${own()}`, "")}${chip("All that I may see", "all")}</div>
      <${Button} onClick=${list.again}>Look again</${Button}><span class="grow"></span><${Columns} columns=${AUDIT_COLUMNS} /></div>
    <${List} list=${list} columns=${AUDIT_COLUMNS} idOf=${revision} label="Audit log" none=${html`<${Empty} title="Nothing was changed yet"><p>Every change by anybody is kept here for as long as the namespace says, a year as a rule.</p></${Empty}>`} />`;
}
