// The firing ledger as bars: every scheduled time is in one of them, and the worst outcome in a bar
// gives it its colour.
import { ms } from "./time.js";

export const BARS_MAX = 180;
// From the worst to what is as it should be.
const WORST = [
  "OUTCOME_MISSED", "OUTCOME_SKIPPED_QUOTA", "OUTCOME_SKIPPED_DEADLINE", "OUTCOME_LATE", "OUTCOME_REPLACED", "OUTCOME_SKIPPED_OVERLAP",
  "OUTCOME_COALESCED", "OUTCOME_SKIPPED_MANUALLY", "OUTCOME_SKIPPED_CALENDAR", "OUTCOME_TRIGGERED", "OUTCOME_RAN",
];

export const worst = (outcomes) => WORST.find((one) => outcomes.has(one)) ?? "OUTCOME_RAN";

// Entries, newest first as the API has them, in at most `most` bars, oldest first:
// [{from, to, count, outcomes: Map(outcome → count), outcome, alone}].
export function bars(entries, most = BARS_MAX) {
  const size = Math.max(1, Math.ceil(entries.length / most));
  const made = [];
  // Counted from the newest, so that a new entry does not shift what all the others show.
  for (let at = 0; at < entries.length; at += size) {
    const part = entries.slice(at, at + size);
    const outcomes = new Map();
    for (const one of part) outcomes.set(one.outcome, (outcomes.get(one.outcome) ?? 0) + Number(one.count ?? 1));
    made.push({
      from: ms(part.at(-1).scheduledTime), to: ms(part[0].lastScheduledTime ?? part[0].scheduledTime),
      count: [...outcomes.values()].reduce((sum, one) => sum + one, 0), outcomes, outcome: worst(outcomes),
      alone: part.length === 1 && !part[0].lastScheduledTime,
    });
  }
  return made.reverse();
}

export function total(entries) {
  return entries.reduce((sum, one) => sum + Number(one.count ?? 1), 0);
}

// Where the offset of the clock changes from one occurrence to the next: "+01:00" to "+02:00".
export function clockChange(before, after) {
  const [one, other] = [before, after].map((occurrence) => /[+-]\d\d:\d\d$|Z$/.exec(occurrence?.localTime ?? "")?.[0]);
  return one && other && one !== other ? `${one} → ${other}` : "";
}

// Audits of many jobs in one sum: `bad` jobs have something wrong, of `unclear` ones not all can be
// judged; both as {job, text}.
export const NO_AUDIT = { jobs: 0, expected: 0, recorded: 0, waiting: 0, bad: [], unclear: [] };

export function added(sum, { job, audit, message = "" }) {
  const jobs = sum.jobs + 1;
  if (!audit) return { ...sum, jobs, unclear: [...sum.unclear, { job, text: message }] };
  const of = (name) => Number(audit[name] ?? 0);
  const one = { job, text: (audit.findings ?? [])[0]?.reason ?? "" };
  const isBad = of("wrong") > 0 || (audit.missing ?? []).length > 0 || (audit.unexpected ?? []).length > 0;
  return {
    jobs, expected: sum.expected + of("expected"), recorded: sum.recorded + of("recorded"), waiting: sum.waiting + of("waitingTimes"),
    bad: isBad ? [...sum.bad, one] : sum.bad, unclear: isBad || audit.sound ? sum.unclear : [...sum.unclear, one],
  };
}
