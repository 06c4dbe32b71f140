// What runs wait for, as the cluster explains it: asked once for runs of one job that stand alike.
import { read } from "./api.js";
import { useEffect, useState } from "./dom.js";
import { namespace } from "./route.js";

const KEPT_MS = 10_000;
const KEPT = 200;
const AT_ONCE = 2;
const QUEUED_MAX = 50;

const kept = new Map();
const queue = [];
let busy = 0;

function next() {
  while (busy < AT_ONCE && queue.length) {
    busy += 1;
    queue.shift()().finally(() => {
      busy -= 1;
      next();
    });
  }
}

const keyOf = (run) => [run.namespace || namespace(), run.job, run.queue, Boolean(run.held), Boolean(run.later), run.concurrencyKey].join("\n");

// A promise of some words; empty where nothing is known.
export function waitsFor(run) {
  const key = keyOf(run);
  const found = kept.get(key);
  if (found && Date.now() - found.at < KEPT_MS) return found.words;
  if (queue.length >= QUEUED_MAX) return Promise.resolve("");
  const words = new Promise((done) => queue.push(async () => {
    try {
      const path = `/v1/runs/${encodeURIComponent(run.id)}/explain`;
      const { summary = "" } = await read(path, { namespace: run.namespace || namespace() });
      done(summary.replace(/^The run \S+: /, "")); // Which run it is, stands beside it.
    } catch {
      done(""); // It may have begun meanwhile; the list says so.
    }
  }));
  kept.delete(key);
  kept.set(key, { at: Date.now(), words });
  if (kept.size > KEPT) kept.delete(kept.keys().next().value);
  next();
  return words;
}

export const isWaiting = (run) => run.state === "RUN_STATE_PENDING";

// The words once they are there, else `first`.
export function useWaits(run, first) {
  const [words, setWords] = useState("");
  const waits = isWaiting(run);
  useEffect(() => {
    let gone = false;
    if (waits) waitsFor(run).then((found) => gone || setWords(found));
    return () => { gone = true; };
  }, [waits, run]);
  return (waits && words) || first;
}
