// What forms of settings hold and the API does not: days as lines, conditions of alerts in words.
import { number } from "./format.js";
import { durationMs, durationOf, length, lengthTyped, typedLength } from "./time.js";

// The days of a calendar as lines that people write, and back.
const DAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
const DATE = /^\d{4}-\d\d-\d\d$/;

// "2026-12-24", "12-25" (each year), "sat", "2026-12-24..2027-01-01"; {rules, wrong}.
export function rulesOf(text) {
  const found = { rules: [], wrong: "" };
  for (const line of text.split("\n").map((one) => one.trim().toLowerCase()).filter(Boolean)) {
    const [first, last, more] = line.split("..");
    if (last !== undefined && more === undefined && DATE.test(first) && DATE.test(last)) found.rules.push({ range: { first, last } });
    else if (DATE.test(line)) found.rules.push({ date: line });
    else if (/^\d\d-\d\d$/.test(line)) found.rules.push({ yearly: line });
    else if (DAYS.includes(line.slice(0, 3)) && /^[a-z]+$/.test(line)) found.rules.push({ weekday: DAYS.indexOf(line.slice(0, 3)) + 1 });
    else found.wrong ||= `"${line}" is no day; write 2026-12-24, 12-25 for each year, sat, or 2026-12-24..2027-01-01`;
  }
  return found;
}

export function lineOf(rule) {
  if (rule.range) return `${rule.range.first}..${rule.range.last}`;
  return rule.date ?? rule.yearly ?? DAYS[(rule.weekday ?? 1) - 1];
}

export const linesOf = (rules = []) => rules.map(lineOf).join("\n");

// What an alert may watch: the field of its condition, words, and what kind of value it takes.
export const CONDITIONS = [
  { name: "deadLettersAbove", says: "more dead letters than", kind: "count" },
  { name: "latenessAbove", says: "a run is ready for longer than", kind: "length" },
  { name: "workersBelow", says: "fewer workers on a queue than", kind: "workers" },
  { name: "brokenJobsAbove", says: "more jobs set aside than", kind: "count" },
  { name: "noMargin", says: "no node can be lost any more", kind: "flag", whole: true },
  { name: "noQuorum", says: "a node hears no leader", kind: "flag", whole: true },
  { name: "clockSkewAbove", says: "a clock is off by more than", kind: "length", whole: true },
  { name: "longStepAbove", says: "the leader stood still for longer than", kind: "length", whole: true },
  { name: "leaderChangesAbove", says: "elections within 10 minutes, more than", kind: "count", whole: true },
  { name: "membersDiffer", says: "members differ in build, zone data or level", kind: "flag", whole: true },
  { name: "setAsideAbove", says: "set aside within 10 minutes, more than", kind: "count", whole: true },
];
const kindOf = (condition = {}) => CONDITIONS.find((one) => condition[one.name] !== undefined && condition[one.name] !== false) ?? CONDITIONS[0];

export function conditionWords(condition) {
  const one = kindOf(condition);
  const value = condition?.[one.name];
  if (one.kind === "count") return `${one.says} ${number(value)}`;
  if (one.kind === "length") return `${one.says} ${length(durationMs(value), true)}`;
  if (one.kind === "workers") return `fewer workers on ${value?.queue} than ${number(value?.minimum)}`;
  return one.says;
}

// A condition as a form has it, and back; undefined where the value is none.
export function formOf(condition) {
  const one = kindOf(condition);
  const value = condition?.[one.name];
  const text = one.kind === "length" ? lengthTyped(durationMs(value)) : one.kind === "workers" ? String(value?.minimum ?? "") : String(value ?? "");
  return { kind: one.name, value: text, queue: value?.queue ?? "" };
}

export function conditionOf({ kind, value, queue }) {
  const one = CONDITIONS.find((found) => found.name === kind);
  if (one.kind === "flag") return { [kind]: true };
  if (one.kind === "length") return typedLength(value) ? { [kind]: durationOf(typedLength(value)) } : undefined;
  if (!/^\d{1,12}$/.test(value)) return undefined;
  if (one.kind === "workers") return queue ? { [kind]: { queue, minimum: Number(value) } } : undefined;
  return { [kind]: value };
}
