// What happened last, newest first: some from before, then what comes.
import { read } from "./api.js";
import { useEffect, useState } from "./dom.js";
import { useLive } from "./live.js";
import { namespace } from "./route.js";

const KINDS = new Set([
  "RUN_SUCCEEDED", "RUN_FAILED", "RUN_RETRYING", "RUN_CANCELLED", "RUN_SKIPPED", "FIRED_NOT", "RUN_REQUEUED",
  "JOB_CREATED", "JOB_UPDATED", "JOB_PAUSED", "JOB_RESUMED", "JOB_DELETED", "JOB_FINISHED", "JOB_BROKEN", "JOB_REPAIRED",
  "QUEUE_CHANGED", "ALERT_RAISED", "ALERT_CLEARED", "FLOW_STUCK",
].map((kind) => `EVENT_KIND_${kind}`));
// Changes to look back over; where so many hold too much for one page, fewer.
const BACK = [400, 40, 4];
const PAGE = 1_000;

const keyOf = (event) => `${event.revision?.change}.${event.revision?.position ?? 0}`;
export const shown = (events) => events.filter((event) => KINDS.has(event.kind));

async function before(signal) {
  const cluster = await read("/v1/cluster", {}, { signal, local: true });
  for (const back of BACK) {
    const change = Math.max(Number(cluster.oldestRevision ?? 0), Number(cluster.revision ?? 0) - back, 0);
    const found = await read("/v1/events", { namespace: namespace() || "default", after: { change, position: 2_147_483_647 }, pageSize: PAGE }, { signal });
    if (found.end || back === BACK.at(-1)) return found.events ?? [];
  }
  return [];
}

// {events, many}: at most `most`, and whether they come too fast to be listed one by one.
export function useHappened(most) {
  const [state, setState] = useState({ events: [], many: false });
  const add = (fresh, many) => setState((old) => {
    const known = new Set(old.events.map(keyOf));
    const kept = [...shown(fresh).filter((event) => !known.has(keyOf(event))).reverse(), ...old.events].slice(0, most);
    return { events: kept, many };
  });
  useEffect(() => {
    const abort = new AbortController();
    setState({ events: [], many: false });
    before(abort.signal).then((events) => add(events, false), () => add([], false)); // What comes is shown all the same.
    return () => abort.abort();
  }, [namespace()]);
  useLive((message) => (message.events ? add(message.events, false) : setState((old) => ({ ...old, many: Boolean(message.many) }))), namespace());
  return state;
}
