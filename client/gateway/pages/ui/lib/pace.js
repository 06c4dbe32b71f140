// How long runs take on each worker, against the same jobs on the others: of the runs that ended
// last, as events have them.
import { useState } from "./dom.js";
import { median } from "./format.js";
import { useLive } from "./live.js";
import { useAsked } from "./load.js";
import { askNewest } from "./past.js";
import { namespace } from "./route.js";
import { ms } from "./time.js";

const KEPT = 1_000;
// Changes to look back over, and runs of them at most; see lib/past.js.
const LOOKS = [[4, KEPT], [40, KEPT], [400, KEPT]];
const ENDED = "kind=RUN_SUCCEEDED OR kind=RUN_FAILED";
// Fewer runs on others say nothing of a job.
const LEAST = 3;
export const SLOW = 1.5;

const ended = (event) => ["EVENT_KIND_RUN_SUCCEEDED", "EVENT_KIND_RUN_FAILED"].includes(event.kind) && event.run?.startTime && event.run?.endTime;
// What is known of a run that ended: of its last attempt alone, which one worker had.
export function timed({ run }) {
  const last = run.attempts?.at(-1);
  const [from, to] = [ms(last?.startTime ?? run.startTime), ms(last?.endTime ?? run.endTime)];
  return { id: run.id, worker: run.worker || last?.worker || "", job: run.job, took: Math.max(0, to - from) };
}

// By worker: {count, median, factor}; `factor` is how many times as long as the others it takes,
// undefined where no other had the same jobs.
export function paces(runs) {
  const jobs = groupBy(runs, (run) => run.job);
  const found = new Map();
  for (const [worker, own] of groupBy(runs, (run) => run.worker)) {
    const usual = new Map();
    const ratios = [];
    for (const { job, took } of own) {
      if (!usual.has(job)) {
        const others = jobs.get(job).filter((run) => run.worker !== worker);
        usual.set(job, others.length < LEAST ? undefined : Math.max(1, median(others.map((run) => run.took))));
      }
      if (usual.get(job) !== undefined) ratios.push(Math.max(1, took) / usual.get(job));
    }
    found.set(worker, { count: own.length, median: median(own.map((run) => run.took)), factor: median(ratios) });
  }
  return found;
}

function groupBy(list, of) {
  const groups = new Map();
  for (const one of list) {
    if (!groups.has(of(one))) groups.set(of(one), []);
    groups.get(of(one)).push(one);
  }
  return groups;
}

async function before(signal) {
  const events = await askNewest(LOOKS, (found) => found.length >= KEPT, { filter: ENDED, signal });
  return events.filter(ended).map(timed);
}

// {by: Map(worker → pace), count}: kept by events, of the last runs of this namespace.
export function usePaces() {
  const asked = useAsked(before, namespace());
  const [fresh, setFresh] = useState([]);
  useLive((message) => {
    const more = (message.events ?? []).filter(ended).map(timed);
    if (more.length) setFresh((old) => [...old, ...more].slice(-KEPT));
    else if (!message.events) asked.soon();
  }, namespace());
  const known = new Map([...(asked.data ?? []), ...fresh].map((run) => [run.id, run]));
  const runs = [...known.values()].slice(-KEPT);
  return { by: paces(runs), count: runs.length };
}
