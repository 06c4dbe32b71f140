// The form of a job: what most of them need. All else is in its text.
import { html, useEffect, useState } from "../lib/dom.js";
import { actionKind, ACTIONS, kindOf, pairsTyped, put, readablePayload, SCHEDULES, typedPairs } from "../lib/specs.js";
import { toBase64 } from "../lib/format.js";
import { Button } from "./bits.js";
import { Area, Choice, LengthField, Text } from "./fields.js";

const SCHEDULES_MAX = 16;
const ZONES = Intl.supportedValuesOf ? ["UTC", ...Intl.supportedValuesOf("timeZone")] : ["UTC"];
const whole = (text) => (text.trim() === "" ? undefined : Number(text));

// What was typed stays as it is, also while it is no pairs yet.
function Pairs({ value, put: give, ...rest }) {
  const [text, setText] = useState(pairsTyped(value));
  useEffect(() => { if (JSON.stringify(typedPairs(text) ?? {}) !== JSON.stringify(value ?? {})) setText(pairsTyped(value)); }, [JSON.stringify(value)]);
  const type = (typed) => (setText(typed), typedPairs(typed) && give(typedPairs(typed)));
  const faults = typedPairs(text) ? rest.faults : [{ field: rest.path, description: "write name=value, more of them with commas" }];
  return html`<${Text} value=${text} put=${type} ...${rest} faults=${faults} />`;
}

function Schedule({ schedule, give, drop, place, faults }) {
  const kind = kindOf(schedule);
  const path = `spec.schedules[${place}]`;
  const change = (next) => give({ cron: { cron: { expression: "" } }, interval: { interval: { every: "60s" } }, afterEnd: { afterEnd: { delay: "60s" } }, once: { once: { time: new Date(Date.now() + 3_600_000).toISOString() } } }[next]);
  const local = (time) => (time ? new Date(Date.parse(time) - new Date(time).getTimezoneOffset() * 60_000).toISOString().slice(0, 19) : "");
  return html`<div class="bar schedule">
    <${Choice} label="When" value=${kind} put=${change} options=${SCHEDULES} />
    ${kind === "cron" ? html`<${Text} label="Expression" mono value=${schedule.cron?.expression} put=${(text) => give({ cron: { expression: text } })} path=${path} faults=${faults} placeholder="0 9 * * mon-fri" help="minute hour day month weekday; seconds may stand in front" />` : ""}
    ${kind === "interval" ? html`<${LengthField} label="Every" value=${schedule.interval.every} put=${(every) => give({ interval: { ...schedule.interval, every } })} path=${path} faults=${faults} />` : ""}
    ${kind === "afterEnd" ? html`<${LengthField} label="After its end" value=${schedule.afterEnd.delay} put=${(delay) => give({ afterEnd: { delay } })} path=${path} faults=${faults} />` : ""}
    ${kind === "once" ? html`<${Text} label="At (your clock)" kind="datetime-local" value=${local(schedule.once.time)} put=${(text) => text && give({ once: { time: new Date(text).toISOString() } })} path=${path} faults=${faults} />` : ""}
    <${Button} onClick=${drop}>Remove</${Button}></div>`;
}

function When({ spec, set, faults }) {
  const schedules = spec.schedules ?? [];
  const give = (place) => (one) => set("schedules", schedules.map((old, other) => (other === place ? one : old)));
  return html`<fieldset><legend>When</legend>
    <div class="field whole">${schedules.map((one, place) => html`<${Schedule} key=${place} schedule=${one} place=${place} faults=${faults} give=${give(place)} drop=${() => set("schedules", schedules.filter((_, other) => other !== place))} />`)}
      ${schedules.length ? "" : html`<p class="soft">No schedule: it runs manually${(spec.upstream?.jobs ?? []).length ? ", and after other jobs" : ""}.</p>`}
      ${schedules.length < SCHEDULES_MAX ? html`<div><${Button} onClick=${() => set("schedules", [...schedules, { cron: { expression: "0 9 * * *" } }])}>Add a schedule</${Button}></div>` : ""}</div>
    <${Text} label="Time zone" value=${spec.timing?.zone} put=${(text) => set("timing.zone", text)} list=${ZONES} path="spec.timing.zone" faults=${faults} placeholder="UTC" />
    <${LengthField} label="Spread" value=${spec.timing?.jitter} put=${(text) => set("timing.jitter", text)} path="spec.timing.jitter" faults=${faults} help="Up to this much later, always the same for this job; so that many do not begin at once." />
    <${Text} label="After the jobs" whole value=${(spec.upstream?.jobs ?? []).map((one) => one.job).join(", ")} path="spec.upstream" faults=${faults} help="Names with commas: it happens when they have succeeded."
      put=${(text) => { const kept = new Map((spec.upstream?.jobs ?? []).map((one) => [one.job, one])); set("upstream.jobs", text.split(",").map((one) => one.trim()).filter(Boolean).map((job) => kept.get(job) ?? { job })); }} />
  </fieldset>`;
}

function Shell({ action, set, faults }) {
  const { argv = [], useShell } = action;
  return html`<${Area} label="Command" rows=${3} value=${useShell ? argv[0] ?? "" : argv.join("\n")} path="spec.action.shell" faults=${faults}
    put=${(text) => set("action.shell", useShell ? { ...action, argv: [text] } : { ...action, argv: text.split("\n") })}
    help=${useShell ? "Handed to /bin/sh -c." : "The program and its arguments, one on each line; no shell looks at them."} />`;
}

function Does({ spec, set, faults, handlers }) {
  const action = spec.action ?? {};
  const kind = actionKind(action);
  const begin = { handler: "", http: { url: "" }, grpc: { target: "" }, shell: { argv: [] } };
  const payload = spec.payload ? readablePayload(spec.payload) : {};
  const shown = payload.json !== undefined ? JSON.stringify(payload.json, null, 2) : payload.text ?? "";
  const [text, setText] = useState(shown);
  useEffect(() => { if (toBase64(squeezed(text)) !== (spec.payload?.data ?? "") && spec.payload?.data !== undefined) setText(shown); }, [spec.payload?.data]);
  const type = (typed) => {
    setText(typed);
    set("payload", typed.trim() ? { ...spec.payload, data: toBase64(squeezed(typed)), contentType: spec.payload?.contentType || "application/json" } : undefined);
  };
  const noJson = text.trim() && (spec.payload?.contentType ?? "application/json") === "application/json" && !isJson(text);
  const own = noJson ? [{ field: "spec.payload", description: "this is no JSON yet" }] : faults;
  return html`<fieldset><legend>What</legend>
    <${Choice} label="It calls" value=${kind} put=${(next) => set("action", { [next]: begin[next] })} options=${ACTIONS} />
    ${kind === "handler" ? html`<${Text} label="Handler" value=${action.handler} put=${(name) => set("action", { handler: name })} list=${handlers} path="spec.action" faults=${faults} help=${handlers.length ? `Workers that are connected have ${handlers.slice(0, 4).join(", ")}${handlers.length > 4 ? " and more" : ""}.` : "No worker is connected now; its name will do."} />` : ""}
    ${kind === "http" ? html`<${Text} label="Address" value=${action.http.url} put=${(url) => set("action.http", { ...action.http, url })} path="spec.action.http" faults=${faults} placeholder="https://…" />
      <${Choice} label="Method" value=${action.http.method ?? ""} put=${(method) => set("action.http", { ...action.http, method })} options=${[["", "POST"], ["GET", "GET"], ["PUT", "PUT"], ["PATCH", "PATCH"], ["DELETE", "DELETE"]]} />
      <${Pairs} label="Headers" value=${action.http.headers} put=${(headers) => set("action.http", { ...action.http, headers })} path="spec.action.http.headers" faults=${faults} help="name=value, with commas" />` : ""}
    ${kind === "grpc" ? html`<${Text} label="Target" value=${action.grpc.target} put=${(target) => set("action.grpc", { ...action.grpc, target })} path="spec.action.grpc.target" faults=${faults} placeholder="host:port" />
      <${Text} label="Method" value=${action.grpc.method} put=${(method) => set("action.grpc", { ...action.grpc, method })} path="spec.action.grpc.method" faults=${faults} placeholder="package.Service/Method" />` : ""}
    ${kind === "shell" ? html`<${Shell} action=${action.shell} set=${set} faults=${faults} />` : ""}
    ${spec.payload?.hidden ? html`<p class="soft">The payload is hidden from you, so it stays as it is.</p>` : html`<${Area} label="Payload" rows=${5} value=${text} put=${type} path="spec.payload" faults=${own} help=${kind === "shell" ? "On its standard input." : kind === "handler" ? "Handed to the handler; JSON." : "Sent as the body; JSON."} placeholder="{}" />`}
  </fieldset>`;
}

function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false; // It is still being typed.
  }
}

// JSON as the cluster keeps it, without the spaces of the form.
const squeezed = (text) => (isJson(text) ? JSON.stringify(JSON.parse(text)) : text);

const OVERLAPS = [["", "skip while one runs"], ["RULE_ALLOW", "side by side"], ["RULE_QUEUE_ONE", "hold back one"], ["RULE_QUEUE", "hold back in order"], ["RULE_REPLACE", "cancel the old one"]];
const MISFIRES = [["", "one run, for the latest"], ["RULE_SKIP", "none, wait for the next"], ["RULE_EARLIEST", "one run, for the earliest"], ["RULE_ALL", "all of them"]];

function Wrong({ spec, set, faults }) {
  return html`<fieldset><legend>If it goes wrong</legend>
    <${Text} label="Tries in all" kind="number" value=${spec.retry?.maxAttempts} put=${(text) => set("retry.maxAttempts", whole(text))} path="spec.retry.max_attempts" faults=${faults} placeholder="4" />
    <${LengthField} label="First wait" value=${spec.retry?.first} put=${(text) => set("retry.first", text)} path="spec.retry.first" faults=${faults} placeholder="5s" />
    <${LengthField} label="One try at most" value=${spec.timeouts?.attempt} put=${(text) => set("timeouts.attempt", text)} path="spec.timeouts.attempt" faults=${faults} help="Then it counts as failed. Empty: no limit." />
    <${LengthField} label="Start at most so late" value=${spec.misfire?.startDeadline} put=${(text) => set("misfire.startDeadline", text)} path="spec.misfire.start_deadline" faults=${faults} help="Later it is skipped. Empty: it waits." />
    <${Choice} label="Times that were missed" value=${spec.misfire?.rule ?? ""} put=${(rule) => set("misfire.rule", rule)} options=${MISFIRES} path="spec.misfire.rule" faults=${faults} />
    <${Choice} label="While the last one runs" value=${spec.overlap?.rule ?? ""} put=${(rule) => set("overlap.rule", rule)} options=${OVERLAPS} path="spec.overlap.rule" faults=${faults} />
    <${Text} label="Pause after failures in a row" kind="number" value=${spec.pauseOnFailure} put=${(text) => set("pauseOnFailure", whole(text))} path="spec.pause_on_failure" faults=${faults} placeholder="never" />
    <${Text} label="When it failed for good, trigger" value=${spec.onFailure?.job} put=${(text) => set("onFailure.job", text)} path="spec.on_failure" faults=${faults} placeholder="no other job" />
  </fieldset>`;
}

function Where({ spec, set, faults }) {
  return html`<fieldset><legend>Where and for whom</legend>
    <${Text} label="Queue" value=${spec.queue} put=${(text) => set("queue", text)} path="spec.queue" faults=${faults} placeholder="default" />
    <${Choice} label="Priority" value=${spec.priority ?? ""} put=${(one) => set("priority", one)} options=${[["", "medium"], ["PRIORITY_HIGH", "high"], ["PRIORITY_LOW", "low"]]} />
    <${Text} label="Runs at once" kind="number" value=${spec.concurrency?.job} put=${(text) => set("concurrency.job", whole(text))} path="spec.concurrency.job" faults=${faults} placeholder="no limit" />
    <${Text} label="Owner" value=${spec.owner} put=${(text) => set("owner", text)} path="spec.owner" faults=${faults} help="Whom to ask about it." />
    <${Pairs} label="Labels" whole value=${spec.labels} put=${(labels) => set("labels", labels)} path="spec.labels" faults=${faults} placeholder="team=billing, stage=live" />
    <${Text} label="Description" whole value=${spec.description} put=${(text) => set("description", text)} path="spec.description" faults=${faults} />
  </fieldset>`;
}

export function JobForm({ job, give, faults, handlers }) {
  const spec = job.spec ?? {};
  const set = (path, value) => give({ ...job, spec: put(spec, path, value) });
  return html`<${Does} ...${{ spec, set, faults, handlers }} /><${When} ...${{ spec, set, faults }} /><${Wrong} ...${{ spec, set, faults }} /><${Where} ...${{ spec, set, faults }} />`;
}

