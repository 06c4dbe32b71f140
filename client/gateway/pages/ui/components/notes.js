// The four states of everything that is asked for: loading, empty, error, stale.
import { html } from "../lib/dom.js";
import { length } from "../lib/time.js";
import { Button } from "./bits.js";

// Words of the API's reasons that a reader may not know.
const MEANS = {
  CLUSTER_UNREACHABLE: "Nobody answers", DEADLINE_PASSED: "No answer in time", NO_QUORUM: "No leader",
  FORBIDDEN: "Not allowed", UNAUTHENTICATED: "Not signed in", FILTER_INVALID: "The filter is not understood",
  JOB_NOT_FOUND: "There is no such job", RUN_NOT_FOUND: "There is no such run", PAGE_TOKEN_INVALID: "This page of the list is gone",
  NAMESPACE_NOT_FOUND: "There is no such namespace", ETAG_MISMATCH: "Somebody changed it meanwhile",
};

// An error says what, why, and offers to try again.
export function Failed({ error, again, what = "" }) {
  const title = MEANS[error.reason] ?? `It did not work${what ? `: ${what}` : ""}`;
  return html`<div class="note" data-is="bad" role="alert">
    <h2>${title}</h2>
    <p>${error.message}</p>
    ${(error.faults ?? []).filter((fault) => !error.message?.includes(fault.description)).map((fault) => html`<p><code>${fault.field}</code> ${fault.description}</p>`)}
    <div class="bar">${again ? html`<${Button} onClick=${again}>Try again</${Button}>` : ""}<span class="soft small">${error.reason}</span></div>
  </div>`;
}

// Nothing is there: what it would be, and what to click or type to have one.
export function Empty({ title, children }) {
  return html`<div class="note"><h2>${title}</h2>${children}</div>`;
}

// What is shown was asked of a node that hears no leader.
export function Stale({ ageMs }) {
  if (ageMs === null || ageMs === undefined) return "";
  return html`<div class="note" data-is="warn" role="status">No leader answers: this is what a node knew ${length(ageMs)} ago. It goes on by itself when there is one.</div>`;
}

// Keeps the place of what is to come.
export function Loading({ rows = 8 }) {
  return html`<div class="table-frame" role="status" aria-label="Loading"><table class="table"><tbody>
    ${Array.from({ length: rows }, (_, at) => html`<tr class="waits"><td><i ref=${(bar) => bar && (bar.style.width = `${30 + ((at * 37) % 60)}%`)}></i></td></tr>`)}
  </tbody></table></div>`;
}

// What stands in place of something that was asked for: see lib/load.js.
export function Asked({ asked, children, what, rows }) {
  if (asked.data) return html`<${Stale} ageMs=${asked.data.ageMs} />${asked.error ? html`<${Failed} error=${asked.error} again=${asked.again} what=${what} />` : ""}${children(asked.data)}`;
  if (asked.error) return html`<${Failed} error=${asked.error} again=${asked.again} what=${what} />`;
  return html`<${Loading} rows=${rows} />`;
}
