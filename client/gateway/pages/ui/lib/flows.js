// Flow runs: how their steps stand, for a reader.
import { plain } from "./format.js";

// The state of a step: that of its run, else whether it waits or cannot run.
export function stepState(step) {
  if (!step) return "NOT_REACHED";
  if (step.run && step.runState) return plain(step.runState);
  return plain(step.state);
}

const FINAL = new Set(["SUCCEEDED", "FAILED", "CANCELLED"]);
const MEETS = {
  CONDITION_SUCCESS: (state) => state === "SUCCEEDED",
  CONDITION_UNSPECIFIED: (state) => state === "SUCCEEDED",
  CONDITION_FAILURE: (state) => state === "FAILED",
  CONDITION_ANY_END: (state) => FINAL.has(state),
};

// Whether what a link asks for came true: "met", "unmet", or "open".
export function linkState(condition, upstream) {
  if ((MEETS[condition] ?? MEETS.CONDITION_SUCCESS)(upstream)) return "met";
  return FINAL.has(upstream) || upstream === "SKIPPED" || upstream === "CANNOT_RUN" ? "unmet" : "open";
}

export const LINK_WORDS = { CONDITION_FAILURE: "when it fails", CONDITION_ANY_END: "when it ends, however" };

// How many steps are in each state, those that need a look first.
const ORDER = ["FAILED", "CANNOT_RUN", "RETRYING", "RUNNING", "PENDING", "WAITING", "CANCELLED", "SKIPPED", "SUCCEEDED"];
export function stepCounts(steps = []) {
  const counts = new Map(ORDER.map((state) => [state, 0]));
  for (const step of steps) counts.set(stepState(step), (counts.get(stepState(step)) ?? 0) + 1);
  return [...counts].filter(([, count]) => count);
}
export const gravity = (state) => (ORDER.includes(state) ? ORDER.length - ORDER.indexOf(state) : 0);
