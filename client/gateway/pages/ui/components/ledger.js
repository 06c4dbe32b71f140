// The ledger of a job: a strip of every scheduled time with what became of it, and the proof that
// none is missing, computed anew from the schedules by the cluster.
import { read } from "../lib/api.js";
import { html, useEffect, useRef, useState } from "../lib/dom.js";
import { number } from "../lib/format.js";
import { bars, BARS_MAX, total } from "../lib/ledger.js";
import { useLiveAsked } from "../lib/load.js";
import { link, namespace, setParams, useParams } from "../lib/route.js";
import { clockTime, exact, now } from "../lib/time.js";
import { Button, Time } from "./bits.js";
import { Asked, Failed } from "./notes.js";
import { Shape, State, stateWord, tone } from "./state.js";

const ENTRIES_MAX = 1_000;
const DAY_MS = 86_400_000;
const STRETCHES = [["newest", "Newest"], ["1", "Day"], ["7", "Week"], ["30", "30 days"], ["90", "90 days"]];
const AUDIT_MS = 20_000;
const BAR_PX = 7;

async function ask(job, since, signal) {
  const fromTime = since === "newest" ? undefined : new Date(now() - Number(since) * DAY_MS).toISOString();
  return read(`/v1/jobs/${encodeURIComponent(job)}/ledger`, { namespace: namespace(), pageSize: ENTRIES_MAX, fromTime }, { signal });
}

function Bar({ bar, picked, pick }) {
  const said = [...bar.outcomes].map(([outcome, count]) => `${bar.count > 1 ? `${number(count)} ` : ""}${stateWord(outcome)}`).join(", ");
  const title = `${exact(bar.from, undefined, false)}${bar.to > bar.from ? ` to ${exact(bar.to, undefined, false)}` : ""}\n${said}`;
  return html`<button type="button" class="is-${tone(bar.outcome)}" title=${title} aria-label=${title} aria-pressed=${picked === bar.from} onClick=${() => pick(bar)}></button>`;
}

function Picked({ bar, job }) {
  const q = bar.alone ? `scheduled_time=${new Date(bar.from).toISOString()}` : `scheduled_time>=${new Date(bar.from).toISOString()} AND scheduled_time<=${new Date(bar.to).toISOString()}`;
  return html`<div class="bar"><${Time} at=${bar.from} as="clock" />${bar.to > bar.from ? html` to <${Time} at=${bar.to} as="clock" />` : ""}
    ${[...bar.outcomes].map(([outcome, count]) => html`<${State} state=${outcome} more=${bar.count > 1 ? number(count) : ""} />`)}
    <a href=${link(["/jobs", job], { tab: "runs", q })}>the runs of it</a></div>`;
}

// What the audit finds: once by itself where the whole stretch is seen, then when somebody asks.
function Proof({ job, from, since }) {
  const [state, setState] = useState({ busy: false, found: null, error: null, at: 0 });
  const run = async () => {
    setState((before) => ({ ...before, busy: true, error: null }));
    try {
      const found = await read(`/v1/jobs/${encodeURIComponent(job)}/audit`, { namespace: namespace(), fromTime: from ? new Date(from).toISOString() : undefined }, { deadline: AUDIT_MS });
      setState({ busy: false, found, error: null, at: now() });
    } catch (error) {
      setState((before) => ({ ...before, busy: false, error }));
    }
  };
  useEffect(() => void run(), [job, since]);
  const { found } = state;
  return html`
    <div class="bar">
      ${found ? html`<span class="state wrap is-${found.sound ? "ok" : "bad"}"><${Shape} of=${found.sound ? "check" : "cross"} tone=${found.sound ? "ok" : "bad"} />
        ${number(found.recorded)} of ${number(found.expected)} scheduled times have an outcome${found.sound ? ": gap-free" : ""}, proved at ${clockTime(state.at)}</span>` : html`<span class="soft">Each scheduled time is computed anew and compared…</span>`}
      <${Button} onClick=${run} disabled=${state.busy}>${state.busy ? "Computing…" : "Prove again"}</${Button}>
    </div>
    ${state.error ? html`<${Failed} error=${state.error} again=${run} />` : ""}
    ${found && !found.sound ? html`<ul class="lines">
      ${(found.missing ?? []).slice(0, 20).map((gap) => html`<li><${Shape} state="MISSED" /><span class="grow"><${Time} at=${gap} as="both" /> has no outcome</span></li>`)}
      ${(found.findings ?? []).slice(0, 20).map((one) => html`<li><${Shape} state=${one.verdict === "VERDICT_WRONG" ? "FAILED" : "WARNING"} /><span class="grow"><${Time} at=${one.scheduledTime} as="both" /> ${Number(one.count) > 1 ? `and ${number(Number(one.count) - 1)} more: ` : ""}${one.reason}</span></li>`)}
    </ul>` : ""}
    ${(found?.waiting ?? []).slice(0, 5).map((one) => html`<p class="soft">${number(one.count)} wait for ${one.awaits}, since <${Time} at=${one.sinceTime} />.</p>`)}`;
}

// How many bars fit into what is there, each wide enough to be hit.
function useRoom() {
  const frame = useRef(null);
  const [room, setRoom] = useState(BARS_MAX);
  useEffect(() => {
    const size = new ResizeObserver(([entry]) => setRoom(Math.max(20, Math.min(BARS_MAX, Math.floor(entry.contentRect.width / BAR_PX)))));
    size.observe(frame.current);
    return () => size.disconnect();
  }, []);
  return { frame, room };
}

export function Ledger({ job, scheduled }) {
  const { frame, room } = useRoom();
  const { since = "newest" } = useParams();
  const [picked, setPicked] = useState(null);
  const asked = useLiveAsked((signal) => ask(job, since, signal), `${namespace()} ${job} ${since}`, (event) => event.job === job && (event.ledger || event.kind === "EVENT_KIND_RUN_FIRED"));
  return html`<section class="card" aria-label="Ledger" ref=${frame}>
    <header><h2>Ledger</h2><span class="grow"></span><div class="chips">${STRETCHES.map(([name, word]) => html`<button type="button" class="chip" aria-pressed=${since === name} onClick=${() => setParams({ since: name === "newest" ? "" : name }, true)}>${word}</button>`)}</div></header>
    <${Asked} asked=${asked} what="ledger" rows=${1}>${(found) => {
      const entries = found.entries ?? [];
      const all = bars(entries, room);
      const first = all[0]?.from;
      const counts = new Map();
      for (const bar of all) for (const [outcome, count] of bar.outcomes) counts.set(outcome, (counts.get(outcome) ?? 0) + count);
      if (!entries.length) return html`<p class="soft">${scheduled ? "No scheduled time has come yet. Each one will stand here with what became of it." : "Without a schedule there is no time that could be missed."}</p>`;
      return html`
        <div class="strip large" role="group" aria-label="Scheduled times, oldest first">${all.map((bar) => html`<${Bar} key=${bar.from} bar=${bar} picked=${picked?.from} pick=${setPicked} />`)}</div>
        ${picked ? html`<${Picked} bar=${picked} job=${job} />` : ""}
        <div class="legend">${[...counts].map(([outcome, count]) => html`<span><${Shape} state=${outcome} />${number(count)} ${stateWord(outcome)}</span>`)}
          <span>${number(total(entries))} scheduled times since <${Time} at=${first} />${found.nextPageToken ? ", the newest of them" : ""}</span></div>
        <${Proof} job=${job} since=${since} from=${found.nextPageToken || since !== "newest" ? first : undefined} />`;
    }}</${Asked}></section>`;
}

