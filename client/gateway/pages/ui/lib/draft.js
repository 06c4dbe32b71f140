// A job that is being written: parts of its spec by path, what is empty left out.
export function at(whole, path) {
  return path.split(".").reduce((held, name) => held?.[name], whole);
}

const isEmpty = (value) =>
  value === undefined || value === null || value === "" || (typeof value === "object" && !Array.isArray(value) && !Object.keys(value).length) || (Array.isArray(value) && !value.length);

// A copy with the value at the path; what is empty then, and what holds nothing else, goes.
export function put(whole, path, value) {
  const [name, ...rest] = path.split(".");
  const made = { ...whole, [name]: rest.length ? put(whole?.[name] ?? {}, rest.join("."), value) : value };
  if (isEmpty(made[name])) delete made[name];
  return made;
}

// "team=billing, stage=live" as a map, and back; undefined where a part is no pair.
export function typedPairs(text) {
  const parts = text.split(/[,\n]/).map((one) => one.trim()).filter(Boolean);
  if (parts.some((one) => !/^[^=]+=/.test(one))) return undefined;
  return Object.fromEntries(parts.map((one) => [one.slice(0, one.indexOf("=")).trim(), one.slice(one.indexOf("=") + 1).trim()]));
}

export const pairsTyped = (map = {}) => Object.entries(map).map(([name, value]) => `${name}=${value}`).join(", ");

// What a schedule is, as its form has it: [kind, what was typed].
export const SCHEDULES = [["cron", "by a cron expression"], ["interval", "every so long"], ["afterEnd", "so long after it ended"], ["once", "once"]];

export function kindOf(schedule = {}) {
  return SCHEDULES.map(([kind]) => kind).find((kind) => schedule[kind]) ?? "cron";
}

export const ACTIONS = [["handler", "a handler of a worker"], ["http", "a call by HTTP"], ["grpc", "a call by gRPC"], ["shell", "a command"]];

export function actionKind(action = {}) {
  return ACTIONS.map(([kind]) => kind).find((kind) => action[kind] !== undefined) ?? "handler";
}

// What a new job begins as.
export const fresh = () => ({ name: "", spec: { action: { handler: "" }, schedules: [{ cron: { expression: "0 9 * * *" } }], timing: { zone: Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC" } } });
