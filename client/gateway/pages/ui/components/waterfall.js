// Where the time of a run went: a line for each stretch, on one axis from its due time on.
import { html, useEffect, useRef } from "../lib/dom.js";
import { isUnderWay, stretches } from "../lib/runs.js";
import { useStore } from "../lib/store.js";
import { clock, clockTime, exact, length } from "../lib/time.js";
import { State, tone } from "./state.js";

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

