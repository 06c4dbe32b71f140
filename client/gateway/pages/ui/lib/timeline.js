// Past and future of one job within a stretch of time, kept alive by events.
import { read } from "./api.js";
import { useEffect, useState } from "./dom.js";
import { plain } from "./format.js";
import { useLive } from "./live.js";
import { namespace } from "./route.js";
import { ms } from "./time.js";

const RUNS_MAX = 300;
const ENTRIES_MAX = 300;
const AHEAD_MAX = 500;
const AT_ONCE = 4;
// Outcomes that have a run beside them, which says more.
const WITH_RUN = new Set(["OUTCOME_RAN", "OUTCOME_LATE", "OUTCOME_TRIGGERED", "OUTCOME_UNSPECIFIED"]);

const waiting = [];
let busy = 0;
function next() {
  while (busy < AT_ONCE && waiting.length) {
    busy += 1;
    waiting.shift()().finally(() => {
      busy -= 1;
      next();
    });
  }
}
// A few rows are asked for at a time: a browser has six connections to a place.
const inTurn = (work) => new Promise((done, fail) => {
  waiting.push(() => work().then(done, fail));
  next();
});

// A run as a mark: where it lies, how long, and how it stands.
export function runMark(run) {
  const at = ms(run.startTime) ?? ms(run.dueTime) ?? ms(run.scheduledTime);
  return { id: run.id, at, end: run.startTime ? ms(run.endTime) ?? null : at, state: plain(run.state), scheduled: ms(run.scheduledTime) };
}

const entryMark = (entry) => ({
  id: `ledger ${entry.scheduledTime}`, at: ms(entry.scheduledTime), end: ms(entry.lastScheduledTime) ?? ms(entry.scheduledTime),
  state: plain(entry.outcome), count: Number(entry.count ?? 1), entry: true,
});

export function merged(marks, mark) {
  const rest = marks.filter((one) => one.id !== mark.id);
  return [...rest, mark].sort((one, other) => one.at - other.at).slice(-2 * RUNS_MAX);
}

async function ask(job, { from, to }, signal) {
  const of = { namespace: namespace(), read: { consistency: "CONSISTENCY_STALE" } };
  const path = `/v1/jobs/${encodeURIComponent(job.name)}`;
  const [first, last] = [new Date(from).toISOString(), new Date(to).toISOString()];
  const filter = `scheduled_time>=${first} AND scheduled_time<${last}`;
  const scheduled = (job.spec?.schedules ?? []).length > 0;
  const nothing = Promise.resolve({});
  const [history, ledger, ahead] = await Promise.all([
    read(`${path}/history`, { ...of, filter, pageSize: RUNS_MAX }, { signal }),
    scheduled ? read(`${path}/ledger`, { ...of, fromTime: first, toTime: last, pageSize: ENTRIES_MAX }, { signal }) : nothing,
    scheduled && to > Date.now() ? read(`${path}/next`, { ...of, count: AHEAD_MAX }, { signal }) : nothing,
  ]);
  const entries = (ledger.entries ?? []).filter((entry) => !WITH_RUN.has(entry.outcome));
  const marks = [...(history.runs ?? []).map(runMark), ...entries.map(entryMark)].sort((one, other) => one.at - other.at);
  const coming = (ahead.occurrences ?? []).map((one) => ({ at: ms(one.dueTime), state: one.excluded ? "SKIPPED_CALENDAR" : "PENDING", note: one.note }));
  return { marks, coming, onward: coming.length >= AHEAD_MAX, cut: Boolean(history.nextPageToken || ledger.nextPageToken), paused: (ahead.warnings ?? []).length > 0 };
}

// {marks, coming, cut, error} of a job; null until it is there.
export function useTimeline(job, range) {
  const key = JSON.stringify([job.namespace, job.name, job.version, range.from, range.to]);
  const [held, setHeld] = useState({ key: "", data: null, error: null });
  useEffect(() => {
    const stop = new AbortController();
    inTurn(() => (stop.signal.aborted ? Promise.resolve(null) : ask(job, range, stop.signal)))
      .then((data) => data && setHeld({ key, data, error: null }), (error) => stop.signal.aborted || setHeld((before) => ({ ...before, error })));
    return () => stop.abort();
  }, [key]);
  useLive((message) => {
    const about = (message.events ?? []).filter((event) => event.job === job.name && (event.run || event.ledger));
    if (!about.length) return;
    setHeld((before) => (before.data ? { ...before, data: { ...before.data, marks: about.reduce((marks, event) => merged(marks, event.run ? runMark(event.run) : entryMark(event.ledger)), before.data.marks) } } : before));
  }, namespace());
  // What was there stays until the new stretch is; it lies where it lay.
  return held;
}
