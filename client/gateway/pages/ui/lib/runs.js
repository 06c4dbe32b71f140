// Runs: what several pages say of them.
import { fromBase64 } from "./format.js";
import { ms, now } from "./time.js";

export const UNDER_WAY = new Set(["RUN_STATE_PENDING", "RUN_STATE_RUNNING", "RUN_STATE_RETRYING"]);
export const isUnderWay = (run) => UNDER_WAY.has(run.state);

// Fields of ListRuns, for completion.
export const RUN_FIELDS = {
  job: { help: "job=report, job:mail" },
  state: { values: ["PENDING", "RUNNING", "RETRYING", "SUCCEEDED", "FAILED", "CANCELLED", "SKIPPED"], help: "without it: those under way" },
  kind: { help: "kind of the error" }, error: { help: "its words", sign: ":" }, warning: { help: "of one that succeeded", sign: ":" }, worker: { help: "that has it now" }, last_worker: { help: "that had it last" },
  queue: { help: "where it waits" }, handler: { help: "what it calls" }, priority: { values: ["HIGH", "MEDIUM", "LOW"], help: "which go first" },
  cause: { values: ["SCHEDULE", "TRIGGER", "UPSTREAM", "BACKFILL", "FAILURE"], help: "why it exists" },
  outcome: { values: ["RAN", "LATE", "TRIGGERED", "REPLACED", "SKIPPED_OVERLAP", "SKIPPED_DEADLINE"], help: "of its scheduled time" },
  attempt: { help: "attempt>1", sign: ">" }, "labels.": { help: "labels.team=billing", sign: "" }, unique_key: { help: "its business key" },
  concurrency_key: { help: "what it counts under" }, flow: { help: "the flow it belongs to" }, due_time: { help: "when it may start", sign: ">" },
  start_time: { help: "when it was leased", sign: ">" }, end_time: { help: "when it ended", sign: ">" }, scheduled_time: { help: "the instant of the schedule", sign: ">" },
};

// Why it waits or how it ended, in some words.
export function remark(run) {
  if (run.error?.kind || run.error?.message) return [run.error.kind, run.error.message].filter(Boolean).join(": ");
  if (run.warning) return run.warning;
  if (run.cancelRequested) return "asked to stop";
  if (run.held) return "held back";
  if (run.later) return "for later";
  if (run.progress?.message) return run.progress.message;
  return "";
}

export const runTook = (run) => (run.startTime ? (ms(run.endTime) ?? now()) - ms(run.startTime) : undefined);
export const late = (run) => (run.startTime && run.dueTime ? Math.max(0, ms(run.startTime) - ms(run.dueTime)) : undefined);

export function logText(run) {
  if (!run.logTail) return "";
  const { text, size } = fromBase64(run.logTail);
  return text ?? `${size} bytes that are no text`;
}

// The waterfall: what stretches there are from the due time to the end, in milliseconds.
// [{kind, from, to, attempt?}]; kinds: "held" (until it was ready), "wait" (for a worker), "attempt",
// "retry" (between two attempts), "dead" (until somebody requeued it).
export function stretches(run, at = now()) {
  const attempts = run.attempts ?? [];
  const due = ms(run.dueTime) ?? ms(run.scheduledTime);
  const end = ms(run.endTime) ?? at;
  const ready = ms(run.readyTime);
  const first = ms(attempts[0]?.startTime) ?? Infinity;
  const made = [];
  let here = Math.min(due ?? end, first, end);
  const add = (kind, to, attempt) => {
    if (to > here || attempt) made.push({ kind, from: here, to: Math.max(to, here), ...(attempt ? { attempt } : {}) });
    here = Math.max(here, to);
  };
  if (ready <= first) add("held", Math.min(ready, end));
  for (const attempt of attempts) {
    const from = ms(attempt.startTime);
    const between = made.some((one) => one.attempt);
    // Requeued, it became ready once more.
    if (between && ready > here && ready <= from) add("dead", ready);
    add(between ? "retry" : "wait", from);
    add("attempt", ms(attempt.endTime) ?? end, attempt);
  }
  if (made.some((one) => one.attempt) && ready > here) add("dead", Math.min(ready, end));
  add(made.some((one) => one.attempt) ? "retry" : "wait", end);
  return made;
}
