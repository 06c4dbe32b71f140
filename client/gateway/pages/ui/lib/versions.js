// What a job was before: its events hold the whole job after each change, as far back as events are
// kept. In steps, so that nothing is asked without an end.
import { read } from "./api.js";

const PAGES_MAX = 20;
const KINDS = ["JOB_CREATED", "JOB_UPDATED", "JOB_PAUSED", "JOB_RESUMED", "JOB_REPAIRED"];

// {versions: [{job, kind, time}], newest first; more: older events were not looked at all}
export async function versionsOf(namespace, name, uid, signal) {
  const filter = `job=${name} AND (${KINDS.map((kind) => `kind=${kind}`).join(" OR ")})`;
  const found = [];
  let after;
  let end = false;
  for (let page = 0; page < PAGES_MAX && !end; page += 1) {
    const answer = await read("/v1/events", { namespace, filter, pageSize: 1_000, after }, { signal });
    for (const event of answer.events ?? []) {
      if (event.jobAfter && event.jobAfter.uid === uid) found.push({ job: event.jobAfter, kind: event.kind, time: event.time });
    }
    after = answer.progress;
    end = answer.end ?? false;
  }
  return { versions: found.reverse(), more: !end };
}
