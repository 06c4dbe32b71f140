// Columns of runs, as several pages list them.
import { html } from "../lib/dom.js";
import { number, words } from "../lib/format.js";
import { link } from "../lib/route.js";
import { late, remark } from "../lib/runs.js";
import { length, ms } from "../lib/time.js";
import { Id, Labels, Length, Meter, Time } from "./bits.js";
import { State, stateOf } from "./state.js";

export const runHref = (run) => link(["/runs", run.id]);

function Ahead({ run }) {
  const { done, total } = run.progress ?? {};
  if (run.state !== "RUN_STATE_RUNNING" || !Number(total)) return "";
  return html`<${Meter} part=${Number(done ?? 0)} whole=${Number(total)} title="${number(done)} of ${number(total)}" />`;
}

const COLUMNS = {
  state: { title: "State", cell: (run) => html`<a class="key" href=${runHref(run)}><${State} state=${stateOf(run)} more=${run.attempt > 1 ? `try ${run.attempt}` : ""} /></a>` },
  job: { title: "Job", kind: "cut", cell: (run) => html`<a class="key" href=${link(["/jobs", run.job])}>${run.job}</a>` },
  scheduled: { title: "Scheduled", cell: (run) => html`<a class="key" href=${runHref(run)}><${Time} at=${run.scheduledTime} as="clock" /></a>` },
  due: { title: "Due", cell: (run) => html`<${Time} at=${run.dueTime} />` },
  started: { title: "Started", lesser: true, hidden: true, cell: (run) => html`<${Time} at=${run.startTime} />` },
  late: { title: "Waited", num: true, lesser: true, cell: (run) => { const size = late(run); return size === undefined ? "–" : length(size); } },
  took: { title: "Took", num: true, cell: (run) => html`<${Length} from=${run.startTime} to=${run.endTime} />` },
  ended: { title: "Ended", cell: (run) => html`<${Time} at=${run.endTime} />` },
  cause: { title: "Cause", lesser: true, cell: (run) => words(run.cause) },
  worker: { title: "Worker", kind: "cut", lesser: true, cell: (run) => run.worker || run.attempts?.at(-1)?.worker || "" },
  remark: { title: "Says", kind: "cut", lesser: true, cell: (run) => html`<${Ahead} run=${run} /><span title=${remark(run)} class=${run.error ? "" : "soft"}>${remark(run)}</span>` },
  queue: { title: "Queue", lesser: true, hidden: true, cell: (run) => run.queue || "default" },
  priority: { title: "Priority", lesser: true, hidden: true, cell: (run) => words(run.priority) || "medium" },
  key: { title: "Key", kind: "cut", lesser: true, hidden: true, cell: (run) => run.uniqueKey || run.concurrencyKey || "" },
  labels: { title: "Labels", lesser: true, hidden: true, cell: (run) => html`<${Labels} labels=${run.labels} />` },
  outcome: { title: "Outcome", lesser: true, hidden: true, cell: (run) => words(run.outcome) },
  id: { title: "Id", lesser: true, hidden: true, cell: (run) => html`<${Id} id=${run.id} />` },
};

export const runColumns = (...names) => names.map((name) => ({ name, ...COLUMNS[name] }));
export const runMs = (run) => ms(run.scheduledTime) ?? 0;
