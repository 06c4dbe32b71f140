// How the cluster did, from the ring that every node keeps: first what a plot can show of it, then
// from the newest stretch on, which grows as long as it lasts.
import { read } from "./api.js";
import { useEffect, useState } from "./dom.js";
import { many } from "./format.js";
import { conditionWords } from "./kept.js";
import { pulse, useLive } from "./live.js";
import { useLeaderBack } from "./load.js";
import { askNewest } from "./past.js";
import { link, namespace } from "./route.js";
import { can } from "./session.js";
import { durationMs, length, ms, now } from "./time.js";
import { waitsFor } from "./waits.js";

// What a plot shows is put together to stretches of `drawn`. What lies further back than `near` is
// asked for in the coarser steps of `past`, which is an eighth of as many.
export const SPANS = {
  "": { word: "15 min", step: "STEP_SECOND", size: 1_000, lasts: 900_000, drawn: 10_000, past: "STEP_TEN_SECONDS", near: 120_000, every: 2_000 },
  "3h": { word: "3 h", step: "STEP_TEN_SECONDS", size: 10_000, lasts: 10_800_000, drawn: 120_000, past: "STEP_MINUTE", near: 1_200_000, every: 5_000 },
  "24h": { word: "24 h", step: "STEP_MINUTE", size: 60_000, lasts: 86_400_000, drawn: 720_000, every: 20_000 },
};
const DEADLINE_MS = 4_000;

// The old with the new: stretches of the same time are replaced, and only the last ones are kept.
export function joined(old, fresh, lasts) {
  if (!fresh.length) return old;
  const [from, until] = [fresh[0].time, fresh.at(-1).time];
  return [...old.filter((one) => one.time < from), ...fresh].filter((one) => one.time > until - lasts);
}

// The figures of a span. `ask(step, since)` gives those since an instant, or all.
export async function spanOf({ step, past, drawn, near, lasts }, at, ask) {
  if (past) {
    // In steps, so that all who open a page now ask for the same, and no stretch is drawn of halves.
    const from = Math.floor((at - near) / drawn) * drawn;
    const [old, fresh] = await Promise.all([ask(past, from + near - lasts), ask(step, from)]);
    const all = [...old.filter((one) => one.time < from), ...fresh];
    if (all.length) return all;
  }
  // There are none yet, or our clock is not the cluster's.
  return ask(step);
}

const figure = (one) => ({
  time: ms(one.time), leader: one.leader ?? "", counted: durationMs(one.counted) ?? 0,
  fired: one.fired ?? 0, started: one.started ?? 0, ended: one.ended ?? 0, failed: one.failed ?? 0,
  p50: durationMs(one.latenessP50) ?? null, p99: durationMs(one.latenessP99) ?? null,
  high: Number(one.readyHigh ?? 0), medium: Number(one.readyMedium ?? 0), low: Number(one.readyLow ?? 0), oldest: durationMs(one.oldestReady) ?? 0,
  workers: Number(one.workers ?? 0), slots: Number(one.slots ?? 0), busy: Number(one.busy ?? 0),
});

async function figuresSince(step, since) {
  const sinceTime = since === undefined ? undefined : new Date(since).toISOString();
  const found = await read("/v1/cluster/figures", { step, sinceTime }, { deadline: DEADLINE_MS, local: true });
  return (found.figures ?? []).map(figure);
}

// {figures, error}: oldest first.
export function useFigures(span) {
  const { step, lasts, every, ...more } = SPANS[span] ?? SPANS[""];
  const [state, setState] = useState({ figures: [], error: null });
  const [turn, setTurn] = useState(0);
  useLeaderBack((begins) => begins || setTurn((before) => before + 1));
  useEffect(() => {
    let gone = false;
    let all = [];
    let timer = null;
    setState((before) => ({ ...before, error: null }));
    const ask = async () => {
      if (!document.hidden) {
        try {
          const last = all.at(-1)?.time;
          all = joined(all, await (last ? figuresSince(step, last) : spanOf({ step, lasts, ...more }, now(), figuresSince)), lasts);
          if (!gone) setState({ figures: all, error: null });
        } catch (error) {
          if (!gone) setState((before) => ({ ...before, error }));
        }
      }
      if (!gone) timer = setTimeout(ask, every);
    };
    ask();
    return () => {
      gone = true;
      clearTimeout(timer);
    };
  }, [step, turn]);
  return state;
}

// Of these the largest is kept where stretches are put together, of all others the mean.
const LARGEST = new Set(["p99", "oldest", "high", "medium", "low", "busy", "slots", "workers"]);

// In stretches of `whole`, by their place in time, so that a new one does not shift what is drawn of
// the others; as they are where there are few, and none is longer than `size`.
export function thinned(figures, size, whole, most) {
  if (figures.length <= most && figures.every((one) => !(one.counted > 1.5 * size))) return { figures, size };
  const made = [...byPlace(figures, whole)].map(([place, group]) => {
    const joint = { ...group[0], time: place * whole };
    for (const name of ["fired", "started", "ended", "failed", "p50", ...LARGEST]) {
      const known = group.map((one) => one[name]).filter((value) => value !== null && value !== undefined);
      joint[name] = !known.length ? null : LARGEST.has(name) ? Math.max(...known) : known.reduce((sum, value) => sum + value, 0) / known.length;
    }
    return joint;
  });
  return { figures: made, size: whole };
}

function byPlace(figures, whole) {
  const groups = new Map();
  for (const one of figures) {
    const place = Math.floor(one.time / whole);
    if (groups.has(place)) groups.get(place).push(one);
    else groups.set(place, [one]);
  }
  return groups;
}

// Columns for a plot: seconds, then each of the named figures; where nothing was counted there is a
// gap.
export function columnsOf(figures, names, size) {
  const times = [];
  const values = names.map(() => []);
  let before = null;
  for (const one of figures) {
    if (before !== null && one.time - before > size * 1.5) {
      times.push((before + size) / 1_000);
      for (const list of values) list.push(null);
    }
    times.push(one.time / 1_000);
    names.forEach((name, at) => values[at].push(one[name]));
    before = one.time;
  }
  return [times, ...values];
}

const RECENT = 10;

// How it is now: the newest stretch that is whole, with rates over the last ten and the lateness of
// the last of these in which something started.
export function latest(figures, size) {
  const whole = figures.filter((one) => one.counted >= size * 0.9);
  const last = whole.at(-1) ?? figures.at(-1);
  if (!last) return undefined;
  const recent = whole.slice(-RECENT);
  const mean = (name) => (recent.length ? recent.reduce((sum, one) => sum + one[name], 0) / recent.length : last[name]);
  const { p50, p99 } = recent.findLast((one) => one.p50 !== null) ?? last;
  return { ...last, fired: mean("fired"), started: mean("started"), ended: mean("ended"), failed: mean("failed"), p50, p99 };
}

// What happened last, newest first: some from before, then what comes.

const KINDS = new Set([
  "RUN_SUCCEEDED", "RUN_FAILED", "RUN_RETRYING", "RUN_CANCELLED", "RUN_SKIPPED", "FIRED_NOT", "RUN_REQUEUED",
  "JOB_CREATED", "JOB_UPDATED", "JOB_PAUSED", "JOB_RESUMED", "JOB_DELETED", "JOB_FINISHED", "JOB_BROKEN", "JOB_REPAIRED",
  "QUEUE_CHANGED", "ALERT_RAISED", "ALERT_CLEARED", "FLOW_STUCK",
].map((kind) => `EVENT_KIND_${kind}`));
// Changes to look back over, and events of them at most; see lib/past.js.
const LOOKS = [[4, 100], [40, 300], [400, 1_000]];

const keyOf = (event) => `${event.revision?.change}.${event.revision?.position ?? 0}`;
export const shown = (events) => events.filter((event) => KINDS.has(event.kind));

// {events, many, known}: at most `most`, whether they come too fast to be listed one by one, and
// whether what was before is there.
export function useHappened(most) {
  const [state, setState] = useState({ events: [], many: false, known: false });
  const add = (fresh, many, before) => setState((old) => {
    const known = new Set(old.events.map(keyOf));
    const kept = [...shown(fresh).filter((event) => !known.has(keyOf(event))).reverse(), ...old.events].slice(0, most);
    return { events: kept, many, known: old.known || Boolean(before) };
  });
  useEffect(() => {
    const abort = new AbortController();
    setState({ events: [], many: false, known: false });
    const before = askNewest(LOOKS, (events) => shown(events).length >= most, { signal: abort.signal });
    before.then((events) => add(events, false, true), () => abort.signal.aborted || add([], false, true)); // What comes is shown all the same.
    return () => abort.abort();
  }, [namespace()]);
  useLive((message) => (message.events ? add(message.events, false) : setState((old) => ({ ...old, many: Boolean(message.many) }))), namespace());
  return state;
}

// What needs a look: each with a state, words, and where to go. Asked for in few calls, each with a
// bound, so it is about what is newest.

export const STALE = { consistency: "CONSISTENCY_STALE" };
const DEAD_MAX = 200;
const FEW = 5;
const WAITS_MAX = 50;
const WAITS_MS = 60_000;
const RECENT_MS = 3_600_000;
const STEP_MS = 10_000;
const SLOW_SYNC_MS = 500;

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

// Those that wait, a line for each job: the run that has waited longest, and how many more there are.
export function byJob(runs) {
  const jobs = new Map();
  for (const run of runs) {
    const one = jobs.get(run.job);
    if (!one) jobs.set(run.job, { run, more: 0 });
    else jobs.set(run.job, { run: ms(run.dueTime) < ms(one.run.dueTime) ? run : one.run, more: one.more + 1 });
  }
  return [...jobs.values()];
}

// The first few lines, and one for all others: `rest(how many)`.
const few = (lines, rest) => (lines.length > FEW ? [...lines.slice(0, FEW), { ...rest(lines.length - FEW), count: lines.length - FEW }] : lines);

export async function troubles(signal) {
  // What the node at hand knows is new enough, and keeps the leader free.
  const about = { namespace: namespace(), read: STALE };
  // Jobs that were set aside have no index, and nearly always there are none.
  const anyBroken = Number(pulse.get().cluster?.brokenJobs ?? 0) > 0;
  // In steps, so that all who look at the same moment ask for the same.
  const since = (size) => new Date(Math.floor((now() - size) / STEP_MS) * STEP_MS).toISOString();
  const ask = (call, path, query) => (can(call) ? read(path, query, { signal }) : {});
  const [dead, waiting, broken, alerts, own] = await Promise.all([
    ask("DeadLetterService/ListDeadLetters", "/v1/deadLetters", { ...about, filter: `end_time>${since(RECENT_MS)}`, pageSize: DEAD_MAX }),
    ask("RunService/ListRuns", "/v1/runs", { ...about, filter: `state=PENDING AND due_time<${since(WAITS_MS)}`, pageSize: WAITS_MAX }),
    anyBroken ? ask("JobService/ListJobs", "/v1/jobs", { ...about, filter: "state=BROKEN", pageSize: FEW }) : {},
    can("AlertService/ListAlerts", "") ? read("/v1/alerts", { read: STALE }, { signal }) : {},
    ask("AlertService/ListAlerts", "/v1/alerts", { ...about, namespace: namespace() || "default" }),
  ]);
  const waits = byJob(waiting.runs ?? []);
  const reasons = await Promise.all(waits.slice(0, FEW).map(({ run }) => waitsFor(run)));
  const least = (found) => (found.nextPageToken ? "at least " : "");
  const slow = (pulse.get().cluster?.nodes ?? []).filter((node) => durationMs(node.slowestSync) >= SLOW_SYNC_MS);
  const raised = [...(alerts.alerts ?? []), ...(own.alerts ?? [])].filter((alert) => alert.raisedTime);
  return [
    ...raised.map((alert) => ({ state: "FIRING", title: alert.name, text: `alert: ${conditionWords(alert.condition)}`, at: alert.raisedTime, href: link(["/settings", "alerts"]) })),
    ...(broken.jobs ?? []).map((job) => ({ state: "BROKEN", title: job.name, text: `set aside: ${job.status?.brokenReason ?? ""}`, at: job.status?.brokenTime, href: link(["/jobs", job.name]) })),
    ...few(grouped(dead.runs ?? []).map((group) => ({
      state: "FAILED", title: group.job, text: `${many(group.count, "run")} failed within the hour${group.kind ? `: ${group.kind}` : ""}`, at: group.last,
      href: link("/dead", { view: "runs", since: "1h", q: group.kind ? `job="${group.job}" AND kind="${group.kind}"` : `job="${group.job}"` }),
    })), (more) => ({ state: "FAILED", title: `${least(dead)}${many(more, "more job")}`, text: "failed within the hour", href: link("/dead", { since: "1h" }) })),
    ...few(waits.map(({ run, more }, at) => ({
      state: "PENDING", title: run.job, at: run.dueTime, href: link(["/runs", run.id]),
      text: `${reasons[at] || (run.held ? "is held back" : "waits for a worker")}${more ? ` (and ${many(more, "more run")})` : ""}`,
    })), (more) => ({ state: "PENDING", title: `${least(waiting)}${many(more, "more job")}`, text: "with runs that wait", href: link("/runs", { q: "state=PENDING" }) })),
    ...slow.map((node) => ({ state: "WARNING", title: node.name, text: `its disk took ${length(durationMs(node.slowestSync))} for one write within the last minute`, href: link("/cluster") })),
  ];
}
