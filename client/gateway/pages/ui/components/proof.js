// Is the last day complete? Each scheduled time of all jobs is computed anew by the cluster and compared
// with the ledgers, so many jobs in a call; when somebody asks for it.
import { read } from "../lib/api.js";
import { html, useEffect, useRef, useState } from "../lib/dom.js";
import { many, number } from "../lib/format.js";
import { added, NO_AUDIT } from "../lib/ledger.js";
import { link, namespace } from "../lib/route.js";
import { now } from "../lib/time.js";
import { Button, Time } from "./bits.js";
import { Failed } from "./notes.js";
import { Shape } from "./state.js";

const DAY_MS = 86_400_000;
const TOGETHER = 50;
const PAGES_MAX = 400;
const LISTED_MAX = 20;
const AUDIT_MS = 20_000;

// Hands over the sums so far, job page by job page, until all were looked at or `gone()`.
async function audit(fromTime, toTime, put, gone) {
  let [sum, pageToken] = [NO_AUDIT, ""];
  for (let page = 0; page < PAGES_MAX && !gone(); page += 1) {
    const found = await read("/v1/jobs", { namespace: namespace(), pageSize: TOGETHER, pageToken });
    let jobs = (found.jobs ?? []).map((job) => job.name);
    while (jobs.length && !gone()) {
      const { audits = [], ageMs } = await read("/v1/audits", { namespace: namespace(), jobs, fromTime, toTime }, { deadline: AUDIT_MS });
      if (ageMs !== null) throw new Error("No leader answers, and what one node has at hand proves nothing.");
      // At least one is there; the rest is asked for again.
      if (!audits.length) throw new Error("The cluster has audited none of these jobs.");
      sum = audits.reduce(added, sum);
      jobs = jobs.slice(audits.length);
      put(sum);
    }
    pageToken = found.nextPageToken;
    if (!pageToken) return;
  }
  if (!gone()) throw new Error(`There are more jobs than are audited from here: ${number(sum.jobs)} were. Use raftsched audit --all.`);
}

function Said({ sum, from, until }) {
  const { bad, unclear, waiting } = sum;
  const [shape, tone] = bad.length ? ["cross", "bad"] : unclear.length ? ["triangle", "warn"] : ["check", "ok"];
  const verdict = bad.length ? `${many(bad.length, "job")} ${bad.length === 1 ? "is" : "are"} not as they should be` : unclear.length ? `nothing is known to be missing, but of ${many(unclear.length, "job")} not all can be judged` : "nothing is missing";
  return html`<p class="state wrap is-${tone}"><${Shape} of=${shape} tone=${tone} /> ${number(sum.recorded)} of ${number(sum.expected)} scheduled times of ${many(sum.jobs, "job")} have an outcome${waiting ? `, ${number(waiting)} still wait for theirs` : ""}: ${verdict}</p>
    <p class="soft">From <${Time} at=${from} as="clock" /> to <${Time} at=${until} as="clock" />. That a run was made does not say how it ended: <a href=${link("/dead", { since: "24h" })}>what failed in the last day</a>.</p>
    ${bad.length + unclear.length ? html`<ul class="lines">${[...bad.map((one) => ({ ...one, state: "FAILED" })), ...unclear.map((one) => ({ ...one, state: "WARNING" }))].slice(0, LISTED_MAX).map((one) => html`<li key=${one.job}><${Shape} state=${one.state} /><a class="grow wrap" href=${link(["/jobs", one.job])}><strong>${one.job}</strong> <span class="soft">${one.text}</span></a></li>`)}</ul>` : ""}
    ${bad.length + unclear.length > LISTED_MAX ? html`<p class="soft">and ${number(bad.length + unclear.length - LISTED_MAX)} more</p>` : ""}`;
}

export function LastDay() {
  const [state, setState] = useState({ stage: "", sum: NO_AUDIT, error: null });
  const turn = useRef(0);
  useEffect(() => () => { turn.current += 1; }, []);
  const run = async () => {
    const mine = (turn.current += 1);
    const gone = () => turn.current !== mine;
    const put = (more) => gone() || setState((before) => ({ ...before, ...more }));
    const until = now();
    put({ stage: "busy", sum: NO_AUDIT, error: null, from: until - DAY_MS, until });
    try {
      await audit(new Date(until - DAY_MS).toISOString(), new Date(until).toISOString(), (sum) => put({ sum }), gone);
      put({ stage: "done" });
    } catch (error) {
      put({ stage: "", error });
    }
  };
  const { stage, sum, error, from, until } = state;
  return html`<section class="card" aria-label="Last day"><header><h2>Last day</h2><span role="status">${stage === "busy" ? `${many(sum.jobs, "job")} looked at…` : stage ? "" : "has every scheduled time become what it should?"}</span><span class="grow"></span>
      <${Button} onClick=${run} disabled=${stage === "busy"}>${stage === "busy" ? "Computing…" : stage ? "Prove again" : "Prove that nothing is missing"}</${Button}></header>
    ${error ? html`<${Failed} error=${error} again=${run} />` : ""}
    ${stage === "done" ? html`<${Said} sum=${sum} from=${from} until=${until} />` : ""}</section>`;
}
