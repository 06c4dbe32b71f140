// A job as text, as files of the command line have it: the API's JSON, payloads in words.
import { fromBase64, toBase64 } from "./format.js";
import { dump, parse } from "./yaml.js";

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
