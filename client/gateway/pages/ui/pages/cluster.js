// The cluster: its members, who leads, what can be lost; move the leader, drain a node, compare states.
import { post, requestId } from "../lib/api.js";
import { html, useEffect, useRef, useState } from "../lib/dom.js";
import { many, number } from "../lib/format.js";
import { pulse } from "../lib/live.js";
import { boundTo, can } from "../lib/session.js";
import { useStore } from "../lib/store.js";
import { ticks, x } from "../lib/axis.js";
import { clockTime, durationMs, exact, length } from "../lib/time.js";
import { Ask } from "../components/ask.js";
import { Button, Copy, Id, Time } from "../components/bits.js";
import { Failed, Loading } from "../components/notes.js";
import { useWidth } from "../components/plot.js";
import { State } from "../components/state.js";

const SLOW_MS = 60_000;
// A check is looked at so often at most: for an hour.
const [LOOK_S, LOOKS_MAX] = [2, 1_800];
const SKEWED_MS = 200;
const SLOW_SYNC_MS = 100;
const DAY_MS = 86_400_000;
const SOON_MS = 14 * DAY_MS;
const NAMED = 8;
const mayCluster = (call) => can(`ClusterService/${call}`, "");
// Members that differ are worth a look.
const differ = (nodes, field) => new Set(nodes.map((node) => node[field]).filter(Boolean)).size > 1;

// The votes of the cluster as a row: who can be reached, how many are needed, how many are spare.
const STEP = 56;
const WIDE = 24;
const isVoter = (node) => node.role !== "ROLE_LEARNER";

function Quorum({ cluster }) {
  const voters = (cluster.nodes ?? []).filter(isVoter);
  if (!voters.length) return "";
  const here = (node) => node.reachable || node.name === cluster.node;
  const sorted = [...voters].sort((one, other) => here(other) - here(one));
  const needed = Math.floor(voters.length / 2) + 1;
  const reached = voters.filter(here).length;
  const spare = Number(cluster.margin ?? 0);
  const word = reached < needed ? `${needed - reached} too few for a majority` : spare ? `can lose ${spare}` : "can lose none";
  const tone = reached < needed ? "bad" : spare ? "ok" : "warn";
  const width = voters.length * STEP;
  const edge = needed * STEP - STEP / 2 + WIDE / 2 + 6;
  return html`<figure class="quorum"><svg viewBox="0 0 ${width} 58" width=${width} height="58" role="img" aria-label=${`${reached} of ${voters.length} voters are reached, ${needed} are needed: ${word}`}>
    <path class="need" d="M${STEP / 2 - WIDE / 2 - 6} 8V3H${edge}V8" />
    ${sorted.map((node, at) => html`<g class=${here(node) ? "is-ok" : "is-bad"} transform="translate(${at * STEP + STEP / 2} 26)">
      ${here(node) ? html`<circle r="11" class="full" />` : html`<circle r="10" class="gone" /><path d="m-4-4 8 8m0-8-8 8" />`}
      <text y="28" text-anchor="middle">${node.name.length > 8 ? `…${node.name.slice(-7)}` : node.name}</text></g>`)}
  </svg><figcaption><strong class="is-${tone}">${word}</strong> <span class="soft">${reached} of ${many(voters.length, "voter")} reached, ${needed} make a majority</span></figcaption></figure>`;
}

function behind(cluster, node) {
  if (!node.appliedIndex) return undefined;
  return Math.max(0, Number(cluster.commitIndex ?? 0) - Number(node.appliedIndex));
}

// How long its certificates are valid.
function ending(node) {
  if (!node.certificateEndTime) return "none";
  const left = Date.parse(node.certificateEndTime) - Date.now();
  return left < 0 ? "not valid" : html`valid for ${length(left)}, <${Time} at=${node.certificateEndTime} as="clock" />`;
}

function Member({ cluster, node, nodes, ask }) {
  const there = node.reachable || node.name === cluster.node;
  const lag = behind(cluster, node);
  const skew = durationMs(node.clockSkew) ?? 0;
  const leads = node.name === cluster.leader;
  const warn = (bad) => (bad ? "is-warn" : "");
  return html`<section class="card" aria-label=${node.name}>
    <header><h2>${node.name}</h2><${State} state=${there ? node.role : "BROKEN"} word=${there ? undefined : "not reached"} />
      <span class="grow"></span>${there && !node.serving ? html`<${State} state="DRAINING" word="takes no calls" />` : ""}</header>
    <dl class="pairs">
      <dt>Behind</dt><dd class=${warn(lag > 1_000)}>${lag === undefined ? "–" : lag ? many(lag, "entry", "entries") : "nothing"}</dd>
      <dt>Disk</dt><dd class=${warn(durationMs(node.slowestSync) > SLOW_SYNC_MS)}>${node.slowestSync ? html`${length(parseFloat(node.slowestSync) * 1_000)} <span class="soft">the slowest write of the last minute</span>` : "–"}</dd>
      <dt>Certificates</dt><dd class=${warn(Date.parse(node.certificateEndTime) - Date.now() < SOON_MS)}>${there ? ending(node) : "–"}</dd>
      <dt>Version</dt><dd class=${warn(differ(nodes, "version") || differ(nodes, "build"))}>${node.version || "–"}${node.build ? html` <span class="soft" title="build: the same for the same code">${node.build.slice(0, 10)}</span>` : ""}</dd>
      <dt>Zone data</dt><dd class=${warn(differ(nodes, "zoneEdition"))}>${node.zoneEdition || "–"}</dd>
      <dt>Feature level</dt><dd>${node.featureLevel ? number(node.featureLevel) : "–"}</dd>
      <dt>Clock</dt><dd class=${warn(Math.abs(skew) > SKEWED_MS)}>${node.name === cluster.node ? "this one counts" : !there ? "–" : Math.abs(skew) < 1 ? "the same" : `${length(skew)} ${skew > 0 ? "ahead" : "behind"}`}</dd>
      <dt>Nodes reach it at</dt><dd><${Id} id=${node.peerAddress ?? ""} most=${36} /></dd>
      <dt>Clients</dt><dd><${Id} id=${node.clientAddress ?? ""} most=${36} /></dd>
    </dl>
    <div class="bar">
      ${cluster.leader && mayCluster("TransferLeadership") && there && isVoter(node) && !leads && node.serving ? html`<${Button} onClick=${() => ask({ what: "lead", node })}>Let it lead…</${Button}>` : ""}
      ${cluster.leader && mayCluster("DrainNode") && there ? html`<${Button} onClick=${() => ask({ what: node.serving ? "drain" : "resume", node })}>${node.serving ? "Drain…" : "Let it serve…"}</${Button}>` : ""}
    </div>
  </section>`;
}

const QUESTIONS = {
  lead: { title: (node) => `Let ${node.name} lead`, yes: "Move the leadership", says: (node, cluster) => `${cluster.leader || "The leader"} hands over to ${node.name}, which takes less than a second as a rule. Runs under way go on.`, act: (node) => post("/v1/cluster:transfer", { node: node.name }, { deadline: SLOW_MS }) },
  drain: { title: (node) => `Drain ${node.name}`, yes: "Drain it", says: (node, cluster) => `${node.name === cluster.leader ? "It hands the leadership over. " : ""}It sends workers and watchers elsewhere and refuses new calls, and it still votes and keeps its copy. Do this before you stop it; pages that go through it find another node.`, act: (node) => post(`/v1/cluster/nodes/${encodeURIComponent(node.name)}:drain`, {}, { deadline: SLOW_MS }) },
  resume: { title: (node) => `Let ${node.name} serve again`, yes: "Let it serve", says: () => "It takes calls, workers and watchers again.", act: (node) => post(`/v1/cluster/nodes/${encodeURIComponent(node.name)}:drain`, { resume: true }, { deadline: SLOW_MS }) },
  snapshot: { title: (node) => `Take a snapshot on ${node.name}`, yes: "Take it", says: () => "The node writes its whole state into a file beside its log, which it then can shorten. It goes on working meanwhile.", act: () => post("/v1/cluster:snapshot", {}, { deadline: 10 * SLOW_MS }) },
};

// What changed is seen at once, and not with the next look.
const shown = (after) => after.nodes && pulse.set({ cluster: { ...after, at: Date.now() } });

function Compare() {
  const [state, setState] = useState({ busy: false, found: null, error: null });
  const gone = useRef(false);
  useEffect(() => () => { gone.current = true; }, []);
  // It may take minutes: asked again and again with one id, it says how far it is.
  const run = async () => {
    const id = requestId();
    let found = { running: true };
    setState({ busy: true, found: null, error: null });
    try {
      for (let look = 0; look < LOOKS_MAX && found.running && !gone.current; look += 1) {
        found = { ...(await post("/v1/cluster:verify", { wait: `${LOOK_S}s` }, { id, deadline: SLOW_MS })), at: Date.now() };
        setState({ busy: Boolean(found.running), found, error: null });
      }
    } catch (error) {
      setState({ busy: false, found: null, error });
    }
  };
  const prints = Object.entries(state.found?.fingerprints ?? {}).sort();
  const same = new Set(prints.map(([, print]) => print)).size <= 1;
  return html`<section class="card"><header><h2>Are the copies equal?</h2><span class="grow"></span>
      <${Button} disabled=${state.busy} onClick=${run}>${state.busy ? "Comparing…" : state.found ? "Compare again" : "Compare now"}</${Button}></header>
    <p class="soft">Every table and counter is computed anew from what it follows from, and the fingerprints of all changes are compared over the nodes.</p>
    ${state.error ? html`<${Failed} error=${state.error} again=${run} />` : ""}
    ${state.found?.running ? html`<p role="status">${many(state.found.looked ?? 0, "place")} looked at, since <${Time} at=${state.found.beginTime} as="clock" />…</p>` : ""}
    ${state.found && !state.found.running ? html`<p><${State} state=${state.found.sound && same ? "SUCCEEDED" : "FAILED"} word=${state.found.sound && same ? "equal and sound" : "not equal"} /> <span class="soft">${many(state.found.records ?? 0, "record")} at revision ${number(state.found.revision)}, <${Time} at=${state.found.at} /></span></p>
      <dl class="pairs">${prints.map(([node, print]) => html`<dt>${node}</dt><dd><${Id} id=${print} most=${24} /></dd>`)}</dl>
      ${(state.found.differences ?? []).map((text) => html`<p class="is-bad">${text}</p>`)}` : ""}
  </section>`;
}

const WHY = {
  REASON_HANDED_OVER: (before) => `${before} handed it over`,
  REASON_CONNECTION_LOST: (before) => `the connection to ${before} was lost`,
  REASON_SILENT: (before) => `${before} was silent for too long`,
};
const why = (one) => WHY[one.reason]?.(one.before || "the one before") ?? (one.before ? `after ${one.before}` : "the first that is known");

// Who came to lead within the last day, on a line and in words.
function Elections({ cluster }) {
  const [frame, width] = useWidth();
  const all = cluster.elections ?? [];
  const now = Date.now();
  const range = { from: now - DAY_MS, to: now, length: DAY_MS };
  const title = (one) => `${clockTime(Date.parse(one.time))}: ${one.leader} leads, term ${number(one.term)}; ${why(one)}`;
  return html`<section class="card" aria-label="Elections"><header><h2>Elections of the last day</h2><span class="grow"></span><span>${all.length ? number(all.length) : "none"}</span></header>
    <div ref=${frame}>${width ? html`<svg class="elections" width=${width} height="34" role="img" aria-label=${`${many(all.length, "election")} within the last 24 hours`}>
      <path class="level" d=${`M0 10H${width}`} />
      ${ticks(range, width).at.map((at) => { const left = x(at, range, width); return left > 24 && left < width - 24 ? html`<text key=${at} x=${left} y="31" text-anchor="middle">${exact(at).slice(15, 20)}</text>` : ""; })}
      ${all.map((one) => html`<g key=${one.term} class=${one.reason === "REASON_HANDED_OVER" ? "is-run" : "is-warn"} transform=${`translate(${Math.min(width - 6, Math.max(6, x(Date.parse(one.time), range, width)))} 10)`}><title>${title(one)}</title>${one.reason === "REASON_HANDED_OVER" ? html`<circle r="4" />` : html`<path d="M0-6 6 5H-6Z" />`}</g>`)}</svg>` : ""}</div>
    ${all.length ? html`<ul class="lines">${all.slice(0, NAMED).map((one) => html`<li key=${one.term}><span class="grow"><strong>${one.leader}</strong> leads, term ${number(one.term)} <span class="soft">${why(one)}</span></span><${Time} at=${one.time} as="clock" /></li>`)}</ul>`
      : html`<p class="soft">Nobody came to lead, as far as the nodes know since they started.</p>`}
  </section>`;
}

function Whole({ cluster, ask }) {
  const nodes = cluster.nodes ?? [];
  const here = nodes.find((node) => node.name === cluster.node);
  const bound = boundTo().length ? ` in ${boundTo()[0]}` : "";
  return html`<section class="card"><header><h2>All of it</h2><span class="grow"></span>${here && mayCluster("TakeSnapshot") ? html`<${Button} onClick=${() => ask({ what: "snapshot", node: here })}>Snapshot…</${Button}>` : ""}</header>
    <dl class="pairs">
      <dt>Id</dt><dd><${Id} id=${cluster.clusterId ?? ""} most=${36} /></dd>
      <dt>Leader</dt><dd>${cluster.leader || html`<span class="is-bad">none</span>`}${cluster.leaderSince ? html` <span class="soft">since <${Time} at=${cluster.leaderSince} as="clock" />, term ${number(cluster.term)}</span>` : ""}</dd>
      <dt>Revision</dt><dd>${number(cluster.revision)} <span class="soft">watched from ${number(cluster.oldestRevision)} on</span></dd>
      <dt>Jobs${bound}</dt><dd>${number(cluster.jobs)}${Number(cluster.brokenJobs) ? html`, <span class="is-bad">${number(cluster.brokenJobs)} set aside</span>` : ""}</dd>
      <dt>Runs under way</dt><dd>${number(cluster.liveRuns)}${Number(cluster.backlog) ? html` <span class="soft">and ${number(cluster.backlog)} missed times to catch up</span>` : ""}</dd>
      ${bound ? "" : html`<dt>Workers</dt><dd>${number(cluster.workers)}</dd>`}
      <dt>Writes by feature level</dt><dd>${number(cluster.featureLevel)}</dd>
      <dt>Snapshot of ${cluster.node}</dt><dd><${Time} at=${cluster.snapshotTime} empty="none yet" /></dd>
      <dt>Fingerprint of ${cluster.node}</dt><dd><${Id} id=${cluster.fingerprint ?? ""} most=${24} /></dd>
    </dl></section>`;
}

// What stood still or was refused, as the node that answers counts it since it started.
function Troubles({ cluster }) {
  const refused = Object.entries(cluster.refused ?? {}).filter(([, count]) => Number(count)).sort((one, other) => other[1] - one[1]);
  const steps = cluster.lastLongSteps ?? [];
  const aside = cluster.setAside ?? [];
  const calm = !refused.length && !steps.length && !aside.length;
  return html`<section class="card"><header><h2>What ${cluster.node} noted since it started</h2></header>
    ${calm ? html`<p class="soft">Nothing stood still, nothing was set aside, nobody was refused.</p>` : ""}
    ${steps.length ? html`<h3>It stood still ${Number(cluster.longSteps) === 1 ? "once" : `${number(cluster.longSteps)} times`}</h3><p class="soft">${cluster.node} does one thing at a time, and these kept it from all others for so long that the rest of the cluster might have taken it for dead. Once in a while does no harm; again and again the machine is too slow or too busy. The last, with how long each took:</p><ul class="lines">${steps.slice(0, 8).map((step) => html`<li><span class="grow">${step.what}</span><span>${length(durationMs(step.duration))}</span><${Time} at=${step.time} /></li>`)}</ul>` : ""}
    ${aside.length ? html`<h3>Set aside</h3><ul class="lines">${aside.slice(0, 8).map((one) => html`<li><span class="grow">${one.what}: ${one.reason}</span><${Time} at=${one.time} /></li>`)}</ul>` : ""}
    ${refused.length ? html`<h3>Refused</h3><dl class="pairs">${refused.slice(0, 12).map(([name, count]) => html`<dt>${name}</dt><dd>${number(count)}</dd>`)}</dl>` : ""}
  </section>`;
}

const COMMANDS = [
  ["Add a node, after starting it with this cluster's addresses", "raftsched cluster add NAME --peer HOST:PORT --client HOST:PORT"],
  ["Replace one that is lost: add the new one, then", "raftsched cluster remove OLD --yes"],
  ["A node has other addresses", "raftsched cluster move NAME --peer HOST:PORT"],
  ["A backup, while it runs", "raftsched cluster backup nightly.tar"],
];

export function Page() {
  const { cluster, unreachable } = useStore(pulse);
  const [asking, setAsking] = useState(null);
  const question = asking && QUESTIONS[asking.what];
  if (!cluster) {
    return html`<div class="page"><div class="page-head"><h1>Cluster</h1></div>${unreachable ? html`<${Failed} error=${{ reason: unreachable.reason, message: "The gateway or its node does not answer. This page asks again each second." }} />` : html`<${Loading} rows=${6} />`}</div>`;
  }
  const nodes = cluster.nodes ?? [];
  const problems = cluster.problems ?? [];
  return html`<div class="page">
    <div class="page-head"><h1>Cluster</h1><span class="soft">as ${cluster.node} sees it</span><span class="grow"></span>${problems.length ? html`<${State} state="WARNING" word=${many(problems.length, "problem")} />` : html`<${State} state="SUCCEEDED" word="nothing is wrong" />`}</div>
    <div class="head-row"><${Quorum} cluster=${cluster} />${problems.length ? html`<ul class="lines grow">${problems.map((text) => html`<li><${State} state="WARNING" word="" /><span class="grow wrap">${text}</span></li>`)}</ul>` : ""}</div>
    ${asking ? html`<${Ask} key=${`${asking.what} ${asking.node.name}`} title=${question.title(asking.node)} yes=${question.yes} act=${async () => shown(await question.act(asking.node))} close=${() => setAsking(null)}><p>${question.says(asking.node, cluster)}</p></${Ask}>` : ""}
    <div class="members">${nodes.map((node) => html`<${Member} key=${node.name} cluster=${cluster} node=${node} nodes=${nodes} ask=${setAsking} />`)}</div>
    <div class="columns"><div class="stack"><${Whole} cluster=${cluster} ask=${setAsking} /><${Elections} cluster=${cluster} /></div><div class="stack">${mayCluster("VerifyState") ? html`<${Compare} />` : ""}<${Troubles} cluster=${cluster} /></div></div>
    <section class="page-part"><h2>What to type for the rest</h2><ul class="lines commands">${COMMANDS.map(([what, command]) => html`<li><span class="grow">${what}</span><${Copy} text=${command} kind="mono">${command}</${Copy}></li>`)}</ul></section>
  </div>`;
}
