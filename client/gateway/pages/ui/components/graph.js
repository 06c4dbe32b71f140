// A graph of jobs, drawn from left to right: what depends on what, and how each stands.
import { html, useMemo, useState } from "../lib/dom.js";
import { number, shortened } from "../lib/format.js";
import { layout, LINK_WORDS, linkState, nearest } from "../lib/graphs.js";
import { Button } from "./bits.js";
import { glyph, stateWord, tone } from "./state.js";

const SIZES = { width: 168, height: 34, across: 36, gap: 10 };
const EDGE = 8;
const NAME_MAX = 20;
// Up to here all of it is made to fit where there is room.
const FITS = 1_500;

// `graph`: GetGraph. `stateOf(job)`: its state or undefined; `hrefOf(job)`: where a click goes;
// `around`: the job that is in the middle where not all are drawn.
export function Graph({ graph, stateOf, hrefOf, around, label }) {
  const [whole, setWhole] = useState(false);
  const jobs = graph.jobs ?? [];
  const key = JSON.stringify([jobs, graph.edges, around]);
  const { drawn, some } = useMemo(() => {
    const links = (graph.edges ?? []).map((edge) => ({ from: edge.upstream, to: edge.downstream, condition: edge.condition }));
    const near = nearest(jobs, links, around);
    return { some: near, drawn: layout(near.jobs, near.links, SIZES) };
  }, [key]);
  const [width, height] = [drawn.width + 2 * EDGE, drawn.height + 2 * EDGE];
  return html`<figure class="graph">
    <div class="graph-frame" tabindex="0" role="group" aria-label=${label}>
      <svg class=${width <= FITS ? "fits" : ""} viewBox="${-EDGE} ${-EDGE} ${width} ${height}" width=${whole ? "100%" : width} height=${whole ? undefined : height}>
        ${drawn.paths.map((link) => html`<path key=${`${link.from} ${link.to}`} d=${link.path} class="link ${linkState(link.condition, stateOf(link.from))} ${link.condition === "CONDITION_SUCCESS" || !link.condition ? "" : "other"}"><title>${link.to} after ${link.from}${LINK_WORDS[link.condition] ? `, ${LINK_WORDS[link.condition]}` : ""}</title></path>`)}
        ${drawn.boxes.map((box) => html`<${Box} key=${box.job} box=${box} state=${stateOf(box.job)} href=${hrefOf(box.job)} at=${box.job === around} />`)}
      </svg>
    </div>
    <figcaption class="legend"><span>${some.jobs.length < jobs.length ? `${number(some.jobs.length)} of ${number(jobs.length)} jobs are drawn, those nearest to ${around}.` : `${number(jobs.length)} jobs`}</span>
      <span><svg width="26" height="8" aria-hidden="true"><path class="link" d="M0 4H26" /></svg>when it succeeds</span><span><svg width="26" height="8" aria-hidden="true"><path class="link other" d="M0 4H26" /></svg>at another end</span>
      <${Button} kind="plain" pressed=${whole} onClick=${() => setWhole(!whole)}>${whole ? "Full size" : "Fit into the window"}</${Button}></figcaption>
  </figure>`;
}

function Box({ box, state, href, at }) {
  const word = state ? stateWord(state) : "";
  return html`<a href=${href} class="box is-${state ? tone(state) : "wait"} ${state === "NOT_REACHED" ? "pale" : ""} ${at ? "at" : ""}" aria-label=${`${box.job}${word ? `: ${word}` : ""}`}>
    <g transform="translate(${box.x} ${box.y})"><title>${box.job}${word ? `: ${word}` : ""}</title>
      <rect width=${SIZES.width} height=${SIZES.height} rx="5" />
      ${state ? html`<g transform="translate(9 11)">${glyph(state)}</g>` : ""}
      <text class="name" x=${state ? 28 : 10} y=${word ? 15 : 21}>${shortened(box.job, NAME_MAX)}</text>
      ${word ? html`<text class="word" x="28" y="28">${word}</text>` : ""}</g></a>`;
}
