// What was picked in a list, as filters of the API that fit exactly that.

// A filter has at most so many signs, and so many conditions.
const SIGNS_MAX = 1_024;
const CONDITIONS_MAX = 50;
const OR = " OR ";

// [filter]: as few as hold all of the values.
export function filtersOf(field, values) {
  const made = [[]];
  let size = 0;
  for (const value of values) {
    const condition = `${field}="${value}"`;
    if (size + condition.length > SIGNS_MAX || made.at(-1).length === CONDITIONS_MAX) {
      made.push([]);
      size = 0;
    }
    made.at(-1).push(condition);
    size += condition.length + OR.length;
  }
  return made.filter((conditions) => conditions.length).map((conditions) => conditions.join(OR));
}

// The plans of several filters as one.
export function together(plans) {
  const sum = (name) => plans.reduce((all, plan) => all + Number(plan[name] ?? 0), 0);
  const list = (name) => plans.flatMap((plan) => plan[name] ?? []);
  return { matched: sum("matched"), matchedIsExact: plans.every((plan) => plan.matchedIsExact), failed: sum("failed"), sample: list("sample").slice(0, SAMPLE_MAX), failures: list("failures") };
}
const SAMPLE_MAX = 20;
