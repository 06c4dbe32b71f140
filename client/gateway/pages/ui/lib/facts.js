// What a list of jobs shows beside each job and the list itself does not hold: how its last runs
// ended, and its schedule in words. Asked for when the row is seen, outcomes of many jobs at once,
// kept, and carried on by events.
import { read } from "./api.js";
import { useEffect, useRef, useState } from "./dom.js";
import { useLive } from "./live.js";
import { namespace } from "./route.js";
import { durationMs, ms } from "./time.js";

export const LAST = 20;
const TOGETHER_MS = 25;
const TOGETHER_MAX = 100;
const AT_ONCE = 4;
const KEPT = 2_000;
const STALE = { consistency: "CONSISTENCY_STALE" };
const ENDED = new Set(["RUN_STATE_SUCCEEDED", "RUN_STATE_FAILED", "RUN_STATE_CANCELLED", "RUN_STATE_SKIPPED"]);

// Values by key, the oldest dropped, with those who look at each.
function cache() {
  const kept = new Map();
  const watching = new Map();
  return {
    get: (key) => kept.get(key),
    set(key, value) {
      kept.delete(key);
      kept.set(key, value);
      if (kept.size > KEPT) kept.delete(kept.keys().next().value);
      for (const one of watching.get(key) ?? []) one(value);
    },
    watch(key, one) {
      watching.set(key, (watching.get(key) ?? new Set()).add(one));
      return () => {
        const rest = watching.get(key);
        rest.delete(one);
        if (!rest.size) watching.delete(key);
      };
    },
  };
}

const outcomes = cache();
const inWords = cache();

// At most so many calls at once; what was seen last is looked at first.
const queue = [];
let busy = 0;
function next() {
  while (busy < AT_ONCE && queue.length) {
    busy += 1;
    queue.pop()().finally(() => {
      busy -= 1;
      next();
    });
  }
}

// What the page needs of a run that has ended, from an event or from GetOutcomes.
export function brief(run) {
  const took = run.duration !== undefined ? durationMs(run.duration) : run.startTime && run.endTime ? ms(run.endTime) - ms(run.startTime) : undefined;
  return { id: run.run ?? run.id, state: run.warning || run.warned ? "WARNING" : run.state, took, at: ms(run.scheduledTime) };
}

// The outcomes with one more, oldest first; a run that is there already is replaced.
export function withRun(runs, run) {
  const made = brief(run);
  return [...runs.filter((one) => one.id !== made.id), made].sort((one, other) => one.at - other.at).slice(-LAST);
}

// Jobs whose outcomes are asked for together: [namespace, name].
let together = new Map();
let timer = null;

function wantOutcomes(where, name) {
  const names = together.get(where) ?? new Set();
  together.set(where, names.add(name));
  timer ??= setTimeout(() => {
    timer = null;
    for (const [space, all] of together) {
      const list = [...all];
      for (let at = 0; at < list.length; at += TOGETHER_MAX) {
        queue.push(() => askOutcomes(space, list.slice(at, at + TOGETHER_MAX)));
      }
    }
    together = new Map();
    next();
  }, TOGETHER_MS);
}

async function askOutcomes(where, names) {
  try {
    const found = await read("/v1/outcomes", { namespace: where, jobs: names, count: LAST, read: STALE });
    for (const one of found.jobs ?? []) outcomes.set(`${where}/${one.job}`, (one.runs ?? []).map(brief).reverse());
    const there = new Set((found.jobs ?? []).map((one) => one.job));
    const rest = names.filter((name) => !there.has(name));
    // Too much for one answer: the rest by itself, as long as that gets anywhere.
    if (found.partial && there.size) for (const name of rest) wantOutcomes(where, name);
    else for (const name of rest) outcomes.set(`${where}/${name}`, []);
  } catch (fault) {
    for (const name of names) outcomes.set(`${where}/${name}`, Object.assign([], { fault }));
  }
}

async function askWords(key, job) {
  try {
    const path = `/v1/jobs/${encodeURIComponent(job.name)}/next`;
    const found = await read(path, { namespace: job.namespace, count: 1, read: STALE });
    inWords.set(key, found.descriptions ?? []);
  } catch (fault) {
    inWords.set(key, Object.assign([], { fault })); // It is shown as it is written.
  }
}

// A value of a cache that is wanted once its element is seen.
function useSeen(held, key, want) {
  const ref = useRef(null);
  const [value, setValue] = useState(held.get(key));
  useEffect(() => {
    setValue(held.get(key));
    const off = held.watch(key, setValue);
    if (held.get(key) || !ref.current) return off;
    const seen = new IntersectionObserver((entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      seen.disconnect();
      want();
    });
    seen.observe(ref.current);
    return () => (seen.disconnect(), off());
  }, [key]);
  return { ref, value };
}

// {ref, value}: the last runs of a job, oldest first; undefined until its row was seen.
export const useOutcomes = (job) => useSeen(outcomes, `${job.namespace}/${job.name}`, () => wantOutcomes(job.namespace, job.name));

export function useWords(job) {
  const key = `${job.namespace}/${job.name}/${job.uid}/${job.version}`;
  return useSeen(inWords, key, () => {
    if (!(job.spec?.schedules ?? []).length) return inWords.set(key, []);
    queue.push(() => askWords(key, job));
    return next();
  });
}

// Carry on what is kept by what happens; once on a page that shows outcomes.
export function useOutcomesAlive() {
  useLive((message) => {
    for (const event of message.events ?? []) {
      const key = `${event.namespace}/${event.job}`;
      const runs = event.run && ENDED.has(event.run.state) ? outcomes.get(key) : null;
      if (runs) outcomes.set(key, withRun(runs, event.run));
    }
  }, namespace());
}
