// The newest dead letters, as many as are grouped, kept alive by events.
import { read } from "./api.js";
import { useLive } from "./live.js";
import { useAsked, useLeaderBack } from "./load.js";
import { namespace } from "./route.js";

const PAGE = 1_000;
// A page ends at 1 MiB, so it may hold few.
const PAGES_MAX = 8;
export const KEPT_MAX = 10_000;
const GONE = new Set(["EVENT_KIND_RUN_REQUEUED", "EVENT_KIND_RUN_CANCELLED"]);

// What the groups need of a run.
const brief = (run) => ({
  id: run.id, job: run.job, queue: run.queue, endTime: run.endTime,
  error: { kind: run.error?.kind ?? "", message: run.error?.message ?? "" },
});

async function newest(filter, signal) {
  const found = { runs: [], total: 0, more: false, ageMs: null };
  let token = "";
  for (let page = 0; page < PAGES_MAX; page += 1) {
    const query = { namespace: namespace(), filter, pageSize: PAGE, pageToken: token };
    const answer = await read("/v1/deadLetters", query, { signal });
    found.runs.push(...(answer.runs ?? []).map(brief));
    Object.assign(found, { total: Number(answer.total ?? 0), ageMs: answer.ageMs });
    token = answer.nextPageToken ?? "";
    if (!token || found.runs.length >= KEPT_MAX) break;
  }
  found.more = token !== "";
  return found;
}

// The list with what an event says; the same list where it says nothing about it.
export function withEvent(data, event) {
  if (!event.run) return data;
  const rest = data.runs.filter((run) => run.id !== event.run.id);
  const was = rest.length < data.runs.length;
  if (event.kind === "EVENT_KIND_RUN_FAILED") {
    const runs = [brief(event.run), ...rest].slice(0, KEPT_MAX);
    return { ...data, runs, total: data.total + (was ? 0 : 1) };
  }
  if (GONE.has(event.kind) && was) return { ...data, runs: rest, total: data.total - 1 };
  return data;
}

export function useNewest(filter) {
  const key = JSON.stringify(["dead", namespace(), filter]);
  const asked = useAsked((signal) => newest(filter, signal), key);
  useLive((message) => {
    if (!message.events) return asked.soon();
    const about = message.events.filter((event) => event.kind === "EVENT_KIND_RUN_FAILED" || GONE.has(event.kind));
    if (!about.length) return;
    // Whether it fits a filter, the cluster knows.
    if (filter) asked.soon();
    else asked.put((data) => about.reduce(withEvent, data));
  }, namespace());
  useLeaderBack(asked.soon);
  return asked;
}

// By job and kind of error: the groups, newest first.
const SAMPLES = 200;

export function groups(runs) {
  const found = new Map();
  for (const run of runs) {
    const kind = run.error?.kind ?? "";
    const key = `${run.job}\n${kind}`;
    let group = found.get(key);
    if (!group) {
      group = {
        key, job: run.job, kind, count: 0, message: run.error?.message ?? "",
        newest: run.endTime, oldest: run.endTime, runs: [], queues: new Set(),
      };
      found.set(key, group);
    }
    group.count += 1;
    group.queues.add(run.queue);
    if (group.runs.length < SAMPLES) group.runs.push(run);
    if (Date.parse(run.endTime) < Date.parse(group.oldest)) group.oldest = run.endTime;
    if (Date.parse(run.endTime) > Date.parse(group.newest)) group.newest = run.endTime;
  }
  return [...found.values()]
    .sort((one, other) => Date.parse(other.newest) - Date.parse(one.newest));
}

// A value as filters take it.
export function quoted(value) {
  return `"${String(value).replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`;
}
