// The public API, and nothing else. Each call has a deadline; a read that finds no leader is asked
// again of what a node has at hand, and says how old that is. While we know of none it begins so.
import { prefix } from "./route.js";
import { store } from "./store.js";

export const READ_MS = 8_000;
export const WRITE_MS = 15_000;
// Reasons after which a node may still answer from what it has.
const LEADERLESS = new Set(["NO_QUORUM", "NOT_LEADER", "LEADER_CHANGED", "CLUSTER_UNREACHABLE", "DEADLINE_PASSED"]);

// What the answers say of the cluster: revision, leader, how old the last answer was.
// A secret that is shown once stays on the page, whatever answers come: `secret` while there is one.
export const answers = store({ revision: "", leader: "", signedOut: false, secret: "" });
// Whether the node beside the gateway hears no leader; see lib/live.js. The gateway itself goes on
// looking for one for half a minute, which nobody who looks at a page should wait for.
export const leaderless = store({ is: false });

export class ApiError extends Error {
  constructor({ status = 0, reason = "", message, faults = [], next = "" }) {
    super(message);
    Object.assign(this, { status, reason, faults, next });
  }
}

export const requestId = () =>
  [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

// {read: {consistency: "X"}} as read.consistency=X; what is empty is left out.
export function queryOf(values, before = "") {
  const made = [];
  for (const [name, value] of Object.entries(values ?? {})) {
    if (value === undefined || value === null || value === "" || value === false) continue;
    if (Array.isArray(value)) made.push(...value.map((one) => [before + name, one]));
    else if (typeof value === "object") made.push(...queryOf(value, `${before}${name}.`));
    else made.push([before + name, String(value)]);
  }
  return made;
}

export function addressOf(path, query) {
  const pairs = queryOf(query);
  return prefix + path + (pairs.length ? `?${new URLSearchParams(pairs)}` : "");
}

function refusal(status, body) {
  const error = body?.error;
  if (!error) return new ApiError({ status, reason: `HTTP_${status}`, message: `The gateway answered with status ${status}.` });
  const info = (error.details ?? []).find((one) => one.reason) ?? {};
  const faults = (error.details ?? []).flatMap((one) => one.fieldViolations ?? []);
  return new ApiError({ status, reason: info.reason ?? error.status, message: error.message, faults });
}

async function sent(verb, address, { body, headers, deadline, signal }) {
  const limit = AbortSignal.timeout(deadline);
  const whole = signal && AbortSignal.any ? AbortSignal.any([signal, limit]) : limit;
  let answer;
  try {
    answer = await fetch(address, {
      method: verb, signal: whole, cache: "no-store", credentials: "same-origin",
      headers: { accept: "application/json", ...(body === undefined ? {} : { "content-type": "application/json" }), ...headers },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    const text = await answer.text();
    const read = text ? JSON.parse(text) : {};
    if (!answer.ok) throw refusal(answer.status, read);
    return { data: read, headers: answer.headers };
  } catch (error) {
    if (error instanceof ApiError || signal?.aborted) throw error;
    const late = limit.aborted;
    throw new ApiError({
      status: answer?.status ?? 0,
      reason: late ? "DEADLINE_PASSED" : "CLUSTER_UNREACHABLE",
      message: late ? `No answer within ${deadline / 1000} s.` : "The gateway does not answer. Is it running?",
    });
  }
}

function note(headers) {
  const revision = headers.get("raftsched-revision") ?? "";
  const leader = headers.get("raftsched-leader") ?? "";
  if (revision || leader) answers.set({ revision: revision || answers.get().revision, leader });
}

async function ask(verb, address, options) {
  try {
    const answer = await sent(verb, address, options);
    note(answer.headers);
    return answer;
  } catch (error) {
    if (error.status === 401 && !answers.get().secret) answers.set({ signedOut: true });
    throw error;
  }
}

// Read. What comes is the message, with `ageMs` where there was no leader to ask (else null) and
// `asOf`, the revision it is true at.
export async function read(path, query = {}, { deadline = READ_MS, signal, local = false } = {}) {
  if (local) return message(await ask("GET", addressOf(path, query), { deadline, signal }), false);
  const early = new AbortController();
  const give = () => early.abort();
  const off = leaderless.watch(({ is }) => is && give());
  if (signal?.aborted) give();
  signal?.addEventListener("abort", give);
  try {
    if (!leaderless.get().is) return message(await ask("GET", addressOf(path, query), { deadline, signal: early.signal }), false);
  } catch (error) {
    if (signal?.aborted || !(early.signal.aborted || LEADERLESS.has(error.reason))) throw error;
  } finally {
    off();
    signal?.removeEventListener("abort", give);
  }
  const stale = { ...query, read: { ...query.read, consistency: "CONSISTENCY_STALE" } };
  return message(await ask("GET", addressOf(path, stale), { deadline, signal }), true);
}

const message = ({ data, headers }, aged) => ({ ...data, ageMs: aged ? Number(headers.get("raftsched-age-ms") ?? 0) : null, asOf: headers.get("raftsched-revision") ?? "" });

// Write: done once, however often it is sent. `etag` guards against somebody who was faster.
export async function write(verb, path, { body, query, etag, deadline = WRITE_MS, id = requestId(), signal } = {}) {
  const headers = { "idempotency-key": id };
  if (etag) headers["if-match"] = `"${etag}"`;
  return (await ask(verb, addressOf(path, query), { body, headers, deadline, signal })).data;
}

export const post = (path, body = {}, { verb = "POST", ...options } = {}) => write(verb, path, { body, ...options });
