// Runs: their columns, as several pages list them, and the waterfall of one.
import { html, useEffect, useRef } from "../lib/dom.js";
import { number, words } from "../lib/format.js";
import { link } from "../lib/route.js";
import { isUnderWay, late, remark, stretches } from "../lib/runs.js";
import { useStore } from "../lib/store.js";
import { clock, clockTime, exact, length } from "../lib/time.js";
import { useWaits } from "../lib/waits.js";
import { Id, Labels, Length, Meter, Time } from "./bits.js";
import { State, stateOf, tone } from "./state.js";

export const runHref = (run) => link(["/runs", run.id]);

function Ahead({ run }) {
  const { done, total } = run.progress ?? {};
  if (run.state !== "RUN_STATE_RUNNING" || !Number(total)) return "";
  return html`<${Meter} part=${Number(done ?? 0)} whole=${Number(total)} title="${number(done)} of ${number(total)}" />`;
}

function Says({ run }) {
  const words = useWaits(run, remark(run));
  return html`<span title=${words} class=${run.error ? "" : "soft"}>${words}</span>`;
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
  remark: { title: "Says", kind: "cut", lesser: true, cell: (run) => html`<${Ahead} run=${run} /><${Says} run=${run} />` },
  queue: { title: "Queue", lesser: true, hidden: true, cell: (run) => run.queue || "default" },
  priority: { title: "Priority", lesser: true, hidden: true, cell: (run) => words(run.priority) || "medium" },
  key: { title: "Key", kind: "cut", lesser: true, hidden: true, cell: (run) => run.uniqueKey || run.concurrencyKey || "" },
  labels: { title: "Labels", lesser: true, hidden: true, cell: (run) => html`<${Labels} labels=${run.labels} />` },
  outcome: { title: "Outcome", lesser: true, hidden: true, cell: (run) => words(run.outcome) },
  id: { title: "Id", lesser: true, hidden: true, cell: (run) => html`<${Id} id=${run.id} />` },
};

export const runColumns = (...names) => names.map((name) => ({ name, ...COLUMNS[name] }));

// Where the time of a run went: a line for each stretch, on one axis from its due time on.

const WORDS = { held: "until it was ready", wait: "waits for a worker", retry: "waits for the next try", dead: "failed, until requeued" };
// A stretch is seen even where it is a ten-thousandth of the whole.
const LEAST = 0.4;

function Line({ stretch, from, whole }) {
  const bar = useRef(null);
  const { kind, attempt } = stretch;
  const left = (100 * (stretch.from - from)) / whole;
  const width = Math.max(LEAST, (100 * (stretch.to - stretch.from)) / whole);
  useEffect(() => {
    bar.current.style.left = `${Math.min(left, 100 - LEAST)}%`;
    bar.current.style.width = `${Math.min(width, 100 - Math.min(left, 100 - LEAST))}%`;
  }, [left, width]);
  const end = attempt?.end ?? "END_UNSPECIFIED";
  const goes = attempt && end === "END_UNSPECIFIED";
  const kindOf = attempt ? (goes ? "run" : tone(end)) : "wait";
  const size = length(stretch.to - stretch.from, true);
  return html`<li>
    <span class="what">${attempt ? html`try ${attempt.number} <${State} state=${goes ? "RUNNING" : end} />` : html`<span class="soft">${WORDS[kind]}</span>`}</span>
    <span class="lane" title=${`${exact(stretch.from)} to ${exact(stretch.to)}`}><i ref=${bar} class="is-${kindOf} ${attempt ? "full" : ""}"></i></span>
    <span class="size num">${size}</span>
    <span class="by soft" title=${attempt ? `${attempt.error?.message ?? ""}\nworker ${attempt.worker}, token ${attempt.token}`.trim() : undefined}>${attempt ? html`${attempt.error?.kind ? html`<span class="is-bad">${attempt.error.kind}</span> ` : ""}${attempt.worker}` : ""}</span>
  </li>`;
}

export function Waterfall({ run }) {
  useStore(clock, ({ tick }) => (isUnderWay(run) ? tick : 0));
  const all = stretches(run);
  if (!all.length) return "";
  const from = all[0].from;
  const to = all.at(-1).to;
  const whole = Math.max(1, to - from);
  const left = Number(run.attempt ?? 0) > (run.attempts ?? []).length ? run.attempt - run.attempts.length : 0;
  return html`<section class="card waterfall" aria-label="Where the time went">
    <header><h2>Where the time went</h2><span class="grow"></span><span>${length(whole, true)} from ${clockTime(from)}</span></header>
    <ul>${all.map((stretch, at) => html`<${Line} key=${at} stretch=${stretch} from=${from} whole=${whole} />`)}</ul>
    ${left ? html`<p class="soft">${left} more tries are not kept.</p>` : ""}
    <div class="axis soft small"><span><i>due</i><i>+${length(whole / 2, true)}</i><i>+${length(whole, true)}</i></span></div>
  </section>`;
}
