// What a list of jobs shows beside each job and the list itself does not hold: its schedule in
// words, and how its last runs ended. Asked for when the row is seen, some at a time, kept, and
// carried on by events.
import { read } from "./api.js";
import { useEffect, useRef, useState } from "./dom.js";
import { useLive } from "./live.js";
import { namespace } from "./route.js";
import { ms } from "./time.js";

export const LAST = 20;
const AT_ONCE = 4;
const KEPT = 2_000;
const ENDED = new Set(["RUN_STATE_SUCCEEDED", "RUN_STATE_FAILED", "RUN_STATE_CANCELLED", "RUN_STATE_SKIPPED"]);

const kept = new Map();
const queue = [];
let busy = 0;

function keep(key, value) {
  kept.delete(key);
  kept.set(key, value);
  if (kept.size > KEPT) kept.delete(kept.keys().next().value);
}

function next() {
  while (busy < AT_ONCE && queue.length) {
    busy += 1;
    const work = queue.pop(); // What was seen last is looked at now.
    work().finally(() => {
      busy -= 1;
      next();
    });
  }
}

const later = (work) => new Promise((done, fail) => {
  queue.push(() => work().then(done, fail));
  next();
});

// What the page needs of a run, and no more of it.
export const brief = (run) => ({ id: run.id, state: run.state, took: run.startTime && run.endTime ? ms(run.endTime) - ms(run.startTime) : undefined, at: run.scheduledTime });

// The outcomes with one more; a run that is there already is replaced.
export function withRun(runs, run) {
  const rest = runs.filter((one) => one.id !== run.id);
  return [...rest, brief(run)].sort((one, other) => (one.at < other.at ? -1 : 1)).slice(-LAST);
}

export const factKey = (job) => `${job.namespace}/${job.name}/${job.uid}/${job.version}`;

// {runs, words} of a job once its row has been seen; null before. `ref` goes on the row's cell.
export function useFacts(job) {
  const key = factKey(job);
  const ref = useRef(null);
  const [facts, setFacts] = useState(kept.get(key) ?? null);
  useEffect(() => {
    setFacts(kept.get(key) ?? null);
    if (kept.has(key) || !ref.current) return;
    const seen = new IntersectionObserver((entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      seen.disconnect();
      later(() => factsOf(job)).then((found) => (keep(key, found), setFacts(found)), (fault) => setFacts({ runs: [], words: [], fault }));
    });
    seen.observe(ref.current);
    return () => seen.disconnect();
  }, [key]);
  useLive((message) => {
    for (const event of message.events ?? []) {
      if (event.job !== job.name || !event.run || !ENDED.has(event.run.state) || !kept.has(key)) continue;
      const held = kept.get(key);
      keep(key, { ...held, runs: withRun(held.runs, event.run) });
      setFacts(kept.get(key));
    }
  }, namespace());
  return { ref, facts };
}

async function factsOf(job) {
  const query = { namespace: job.namespace, read: { consistency: "CONSISTENCY_STALE" } };
  const path = `/v1/jobs/${encodeURIComponent(job.name)}`;
  const scheduled = (job.spec?.schedules ?? []).length > 0;
  const [history, preview] = await Promise.all([
    read(`${path}/history`, { ...query, pageSize: LAST }),
    scheduled ? read(`${path}/next`, { ...query, count: 1 }) : { descriptions: [] },
  ]);
  const runs = (history.runs ?? []).filter((run) => ENDED.has(run.state)).map(brief).reverse();
  return { runs, words: preview.descriptions ?? [] };
}
