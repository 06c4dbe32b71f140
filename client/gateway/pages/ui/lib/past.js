// What happened last, from the events that are kept. They are read forwards from a place, so the
// newest are found by looking a few changes back, and further where those held too few: four changes
// of a busy cluster hold a thousand events, and the leader makes each of them for whoever asks.
import { read } from "./api.js";
import { namespace } from "./route.js";

const BEHIND_ALL = 2_147_483_647;

// The events of the furthest look that reaches up to now. `looks`: [[changes back, events at most],
// …], from few to many; `isEnough(events)` ends it. `ask(change, pageSize)` gives {events, end}:
// those behind a change, and whether there are no more.
export async function newest({ revision, oldest }, looks, isEnough, ask) {
  let kept = null;
  for (const [back, most] of looks) {
    const change = Math.max(oldest, revision - back, 0);
    const { events = [], end } = await ask(change, most);
    // So much happened that this ends before now: what was seen from nearer is newer.
    if (!end) return kept ?? events;
    kept = events;
    if (isEnough(kept) || change === Math.max(oldest, 0)) break;
  }
  return kept ?? [];
}

export async function askNewest(looks, isEnough, { filter, signal }) {
  const cluster = await read("/v1/cluster", {}, { signal, local: true });
  const kept = { revision: Number(cluster.revision ?? 0), oldest: Number(cluster.oldestRevision ?? 0) };
  return newest(kept, looks, isEnough, (change, pageSize) => read("/v1/events", {
    namespace: namespace() || "default", filter, after: { change, position: BEHIND_ALL }, pageSize,
  }, { signal }));
}
