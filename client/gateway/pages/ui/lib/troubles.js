// What needs a look: each with a state, words, and where to go. Asked for in few calls, each with a
// bound, so it is about what is newest.
import { read } from "./api.js";
import { many, words } from "./format.js";
import { link, namespace } from "./route.js";
import { can } from "./session.js";
import { length, ms, now } from "./time.js";

const DEAD_MAX = 200;
const FEW = 5;
const WAITS_MS = 60_000;
const RECENT_MS = 3_600_000;

// Dead letters of one job and kind of error are one line.
export function grouped(runs) {
  const groups = new Map();
  for (const run of runs) {
    const key = `${run.job}\n${run.error?.kind ?? ""}`;
    const group = groups.get(key) ?? { job: run.job, kind: run.error?.kind ?? "", message: run.error?.message ?? "", count: 0, last: run.endTime };
    group.count += 1;
    groups.set(key, group);
  }
  return [...groups.values()].sort((one, other) => other.count - one.count);
}

const conditionOf = (alert) => words(Object.keys(alert.condition ?? {})[0]?.replace(/[A-Z]/g, (letter) => `_${letter}`) ?? "");

export async function troubles(signal) {
  const about = { namespace: namespace() };
  const since = (size) => new Date(now() - size).toISOString();
  const ask = (call, path, query) => (can(call) ? read(path, query, { signal }) : {});
  const [dead, waiting, broken, alerts, own] = await Promise.all([
    ask("DeadLetterService/ListDeadLetters", "/v1/deadLetters", { ...about, filter: `end_time>${since(RECENT_MS)}`, pageSize: DEAD_MAX }),
    ask("RunService/ListRuns", "/v1/runs", { ...about, filter: `state=PENDING AND due_time<${since(WAITS_MS)}`, pageSize: FEW }),
    ask("JobService/ListJobs", "/v1/jobs", { ...about, filter: "state=BROKEN", pageSize: FEW }),
    can("AlertService/ListAlerts", "") ? read("/v1/alerts", {}, { signal }) : {},
    ask("AlertService/ListAlerts", "/v1/alerts", { namespace: namespace() || "default" }),
  ]);
  const raised = [...(alerts.alerts ?? []), ...(own.alerts ?? [])].filter((alert) => alert.raisedTime);
  return [
    ...raised.map((alert) => ({ state: "FIRING", title: alert.name, text: `alert: ${conditionOf(alert)}`, at: alert.raisedTime, href: link("/settings", { tab: "alerts" }) })),
    ...(broken.jobs ?? []).map((job) => ({ state: "BROKEN", title: job.name, text: `set aside: ${job.status?.brokenReason ?? ""}`, at: job.status?.brokenTime, href: link(["/jobs", job.name]) })),
    ...grouped(dead.runs ?? []).slice(0, FEW).map((group) => ({
      state: "FAILED", title: group.job, text: `${many(group.count, "run")} failed within the hour${group.kind ? `: ${group.kind}` : ""}`, at: group.last,
      href: link("/dead-letters", { q: group.kind ? `job="${group.job}" AND kind="${group.kind}"` : `job="${group.job}"` }),
    })),
    ...(waiting.runs ?? []).map((run) => ({
      state: "PENDING", title: run.job, text: run.held ? "is held back" : "waits for a worker", at: run.dueTime, waits: now() - ms(run.dueTime), href: link(["/runs", run.id]),
    })),
  ];
}

export const waited = (trouble) => (trouble.waits === undefined ? "" : length(trouble.waits));
