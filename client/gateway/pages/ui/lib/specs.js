// Specs of jobs: what a person calls their parts, as text, as they are written, and how two differ.
import { fromBase64, toBase64 } from "./format.js";
import { durationMs, length } from "./time.js";
import { dump, parse } from "./yaml.js";

// Schedules as they are written, where nobody has put them into words yet.
export function written(spec = {}) {
  const all = (spec.schedules ?? []).map((one) => {
    if (one.cron) return one.cron.expression;
    if (one.interval) return `every ${length(durationMs(one.interval.every), true)}`;
    if (one.afterEnd) return `${length(durationMs(one.afterEnd.delay ?? "0s"), true)} after the last run ended`;
    return `once at ${one.once?.time ?? ""}`;
  });
  if ((spec.upstream?.jobs ?? []).length) all.push(`after ${spec.upstream.jobs.map((one) => one.job).join(", ")}`);
  return all.length ? all : ["manually"];
}

// "handler mail", "POST https://…", "gRPC …", "$ tool --flag".
export function action(spec = {}) {
  const kind = spec.action ?? {};
  if (kind.http) return `${kind.http.method || "POST"} ${kind.http.url}`;
  if (kind.grpc) return `gRPC ${kind.grpc.target} ${kind.grpc.method}`;
  if (kind.shell) return `$ ${(kind.shell.argv ?? []).join(" ")}`;
  return kind.handler ?? "";
}

export const queueOf = (spec) => spec?.queue || "default";
// The zone that times of a job are to be read in; none where it has no clock times.
export const clockZone = (spec = {}) => spec.timing?.zone || ((spec.schedules ?? []).some((one) => one.cron) ? "UTC" : "");
export const zoneOfJob = (job) => job?.spec?.timing?.zone || "UTC";

// A job as text, as files of the command line have it: the API's JSON, payloads in words.

// {name, spec} with the payload as {json} or {text}, where it is one.
export function readable(job) {
  const { payload, ...spec } = job.spec ?? {};
  const made = { name: job.name, spec };
  if (payload) made.spec = { ...spec, payload: readablePayload(payload) };
  return made;
}

export function readablePayload(payload) {
  if (payload.hidden) return payload;
  const { text } = fromBase64(payload.data);
  if (text === null) return payload;
  const { data, contentType = "", ...rest } = payload;
  try {
    const json = JSON.parse(text);
    // Only what would come back as it is.
    if (contentType === "application/json" && JSON.stringify(json) === text) return { ...rest, json };
  } catch {
    // No JSON: its text is shown.
  }
  return { ...rest, text, ...(contentType ? { contentType } : {}) };
}

// And back, as the API takes it.
export function sendable(made) {
  const payload = made?.spec?.payload;
  if (!payload || typeof payload !== "object") return made;
  const { json, text, ...rest } = payload;
  if (json !== undefined) return { ...made, spec: { ...made.spec, payload: { contentType: "application/json", ...rest, data: toBase64(JSON.stringify(json)) } } };
  if (text !== undefined) return { ...made, spec: { ...made.spec, payload: { ...rest, data: toBase64(text) } } };
  return made;
}

export const toYaml = (job) => dump(readable(job));
export const toJson = (job) => JSON.stringify(readable(job), null, 2);

// What somebody has typed, YAML or JSON; throws with the line where it is neither.
export function fromText(text) {
  const made = parse(text);
  if (!made || typeof made !== "object" || Array.isArray(made)) throw new Error("a job has a name and a spec: “name: report”, and below it “spec:”");
  return sendable(made);
}

// A job that is being written: parts of its spec by path, what is empty left out.
const isEmpty = (value) =>
  value === undefined || value === null || value === "" || (typeof value === "object" && !Array.isArray(value) && !Object.keys(value).length) || (Array.isArray(value) && !value.length);

// A copy with the value at the path; what is empty then, and what holds nothing else, goes.
export function put(whole, path, value) {
  const [name, ...rest] = path.split(".");
  const made = { ...whole, [name]: rest.length ? put(whole?.[name] ?? {}, rest.join("."), value) : value };
  if (isEmpty(made[name])) delete made[name];
  return made;
}

// "team=billing, stage=live" as a map, and back; undefined where a part is no pair.
export function typedPairs(text) {
  const parts = text.split(/[,\n]/).map((one) => one.trim()).filter(Boolean);
  if (parts.some((one) => !/^[^=]+=/.test(one))) return undefined;
  return Object.fromEntries(parts.map((one) => [one.slice(0, one.indexOf("=")).trim(), one.slice(one.indexOf("=") + 1).trim()]));
}

export const pairsTyped = (map = {}) => Object.entries(map).map(([name, value]) => `${name}=${value}`).join(", ");

// What a schedule is, as its form has it: [kind, what was typed].
export const SCHEDULES = [["cron", "by a cron expression"], ["interval", "every so long"], ["afterEnd", "so long after it ended"], ["once", "once"]];

export function kindOf(schedule = {}) {
  return SCHEDULES.map(([kind]) => kind).find((kind) => schedule[kind]) ?? "cron";
}

export const ACTIONS = [["handler", "a handler of a worker"], ["http", "a call by HTTP"], ["grpc", "a call by gRPC"], ["shell", "a command"]];

export function actionKind(action = {}) {
  return ACTIONS.map(([kind]) => kind).find((kind) => action[kind] !== undefined) ?? "handler";
}

// What a new job begins as.
export const fresh = () => ({ name: "", spec: { action: { handler: "" }, schedules: [{ cron: { expression: "0 9 * * *" } }], timing: { zone: Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC" } } });

// What differs between two specs: by path, as a person would read it.
const LINES_MAX = 2_000;

// [{path, before, after}]; a part that is only in one of them is undefined in the other.
export function changes(before, after, path = "") {
  if (JSON.stringify(before) === JSON.stringify(after)) return [];
  const both = [before, after].every((one) => one && typeof one === "object" && !Array.isArray(one));
  if (!both) return [{ path: path || "all of it", before, after }];
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  return names.flatMap((name) => changes(before[name], after[name], path ? `${path}.${name}` : name));
}

// The lines of two texts as [sign, line], sign being " ", "-" or "+"; of what is too long the whole
// of both.
export function lines(before, after) {
  const [old, fresh] = [before.split("\n"), after.split("\n")];
  if (old.length + fresh.length > LINES_MAX) return [...old.map((line) => ["-", line]), ...fresh.map((line) => ["+", line])];
  const common = Array.from({ length: old.length + 1 }, () => new Uint16Array(fresh.length + 1));
  for (let i = old.length - 1; i >= 0; i -= 1) {
    for (let j = fresh.length - 1; j >= 0; j -= 1) {
      common[i][j] = old[i] === fresh[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
    }
  }
  const made = [];
  let [i, j] = [0, 0];
  while (i < old.length && j < fresh.length) {
    if (old[i] === fresh[j]) {
      made.push([" ", old[i]]);
      i += 1;
      j += 1;
    } else if (common[i + 1][j] >= common[i][j + 1]) made.push(["-", old[i++]]);
    else made.push(["+", fresh[j++]]);
  }
  return [...made, ...old.slice(i).map((line) => ["-", line]), ...fresh.slice(j).map((line) => ["+", line])];
}
