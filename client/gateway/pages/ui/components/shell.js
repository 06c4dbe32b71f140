// The frame of every page: navigation, the pulse, what is chosen for all of them, the keyboard.
import { answers } from "../lib/api.js";
import { html, useEffect, useState } from "../lib/dom.js";
import { many, number } from "../lib/format.js";
import { onKeys } from "../lib/keys.js";
import { pulse } from "../lib/live.js";
import { useAsked } from "../lib/load.js";
import { read } from "../lib/api.js";
import { go, link, place, prefix } from "../lib/route.js";
import { boundTo, session } from "../lib/session.js";
import { choose, chosen, useStore } from "../lib/store.js";
import { chooseZone, clock, clockTime, here, length, now, zoneChoice } from "../lib/time.js";
import { FIRST, inNav } from "../registry.js";
import { Help, Palette } from "./palette.js";
import { SignIn } from "./signin.js";

const NAMESPACES_MAX = 200;
const QUIET_MS = 3_000;

const Icon = ({ path }) => html`<svg width="16" height="16" viewBox="0 0 16 16" fill="none" stroke="currentColor" stroke-width="1.5" aria-hidden="true"><path d=${path} /></svg>`;
const MARK = "M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8ZM8 4.2V8l2.8 1.8";
const MORE = "M2.5 8h2M7 8h2M11.5 8h2";

function Nav({ path }) {
  const is = (page) => (path === page.path || (page.path !== "/" && path.startsWith(`${page.path}/`)) ? "page" : undefined);
  const later = inNav.slice(FIRST);
  return html`<nav class="nav" aria-label="Pages">
    <a class="name" href=${link("/")}><${Icon} path=${MARK} />raftsched</a>
    ${inNav.map((page, at) => html`<a key=${page.path} class="to ${at < FIRST ? "" : "later"}" href=${link(page.path)} aria-current=${is(page)} title=${`g ${page.key}`}>
      <${Icon} path=${page.icon} />${page.nav}</a>`)}
    ${later.length ? html`<details class="nav-more"><summary><${Icon} path=${MORE} />More</summary><div onClick=${(event) => { event.currentTarget.parentElement.open = false; }}>
      ${later.map((page) => html`<a href=${link(page.path)} aria-current=${is(page)}><${Icon} path=${page.icon} />${page.nav}</a>`)}</div></details>` : ""}
    <div class="rest"><a href="${prefix}/docs">HTTP reference</a><span><kbd>?</kbd> keys <kbd>Ctrl K</kbd> go to</span></div>
  </nav>`;
}

// How the cluster is, in one line: [kind, words before, words behind].
export function pulseOf({ status, cluster, unreachable, change = 0 }, at) {
  if (unreachable && at - (unreachable.since ?? 0) > QUIET_MS) {
    const asOf = unreachable.since ? `, as of ${clockTime(unreachable.since)}` : "";
    return unreachable.reason === "UNAUTHENTICATED" ? ["wait", "not signed in", ""] : ["bad", `the gateway does not answer${asOf}`, ""];
  }
  if (!cluster) return ["wait", "connecting", ""];
  const reached = (cluster.nodes ?? []).filter((node) => node.reachable || node.name === cluster.node).length;
  const nodes = `${reached} of ${(cluster.nodes ?? []).length} nodes`;
  const revision = number(Math.max(Number(cluster.revision ?? 0), change));
  const tail = `${nodes} · revision ${revision}`;
  if (!cluster.leader) return ["warn", "no leader", `what you see is as of revision ${revision} · ${nodes}`];
  const leads = `${cluster.leader} leads, term ${number(cluster.term)} · ${tail}`;
  if (status.is === "lost") return ["warn", `events stopped ${length(at - status.since)} ago`, leads];
  if (status.is === "paused") return ["wait", "paused while hidden", leads];
  return [reached < (cluster.nodes ?? []).length || (cluster.problems ?? []).length ? "warn" : "ok", status.is === "live" ? "live" : "connecting", leads];
}

function Pulse() {
  useStore(clock, ({ tick }) => tick);
  const [kind, before, behind] = pulseOf(useStore(pulse), now());
  return html`<div class="pulse" data-is=${kind} role="status" aria-live="off" title=${`${before} · ${behind}`}><i class="dot"></i><strong>${before}</strong><span>${behind}</span></div>`;
}

function Namespace() {
  const params = useStore(place, (one) => one.params);
  const bound = boundTo();
  const known = useStore(session, (one) => one.caller !== null);
  const asked = useAsked((signal) => (bound.length || !known ? { namespaces: bound.map((name) => ({ name })) } : read("/v1/namespaces", { pageSize: NAMESPACES_MAX }, { signal })), `${known} ${bound.join()}`);
  const names = [...new Set(["default", ...(asked.data?.namespaces ?? []).map((one) => one.name), params.ns].filter(Boolean))];
  const put = (name) => go(link(place.get().path.split("/").slice(0, 2).join("/"), { ns: name === "default" ? "" : name }));
  return html`<select aria-label="Namespace" title="Namespace" onChange=${(event) => put(event.target.value)}>
    ${names.map((name) => html`<option key=${name} value=${name} selected=${name === (params.ns || "default")}>${name}</option>`)}</select>`;
}

const THEMES = [["system", "as the system has it"], ["light", "light"], ["dark", "dark"]];

// What belongs to this browser and not to the page: the theme, the zone of all times.
function View() {
  const [theme, setTheme] = useState(chosen("theme", "system"));
  const zone = useStore(zoneChoice, (one) => one.zone);
  const zones = [["here", here()], ...(here() === "UTC" ? [] : [["utc", "UTC"]]), ["job", "the job's own"]];
  const put = (next) => {
    choose("theme", next);
    setTheme(next);
    if (next === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    dispatchEvent(new Event("theme"));
  };
  const choice = (group, value, word, on, act) => html`<label class="check"><input type="radio" name=${group} checked=${on} onChange=${() => act(value)} />${word}</label>`;
  return html`<details class="menu"><summary class="button">View</summary><div>
    <strong>Times in</strong>${zones.map(([value, word]) => choice("zone", value, word, value === zone, chooseZone))}
    <strong>Theme</strong>${THEMES.map(([value, word]) => choice("theme", value, word, value === theme, put))}</div></details>`;
}

function WhoAmI() {
  const caller = useStore(session, (one) => one.caller);
  const signOut = async () => {
    await fetch(`${prefix}/session`, { method: "DELETE", credentials: "same-origin", signal: AbortSignal.timeout(8_000) });
    location.reload();
  };
  if (!caller) return "";
  if (caller.kind === "KIND_ANONYMOUS") return html`<span class="soft nowrap" title="There are no access tokens yet: everybody who reaches this cluster is an admin. raftsched token create makes the first one.">open to all</span>`;
  return html`<details class="menu"><summary class="button">${caller.name || "signed in"}</summary><div>
    ${(caller.grants ?? []).map((grant) => html`<span class="soft nowrap">${grant.role.replace("ROLE_", "").toLowerCase()} in ${grant.namespace || "all namespaces"}</span>`)}
    <button type="button" onClick=${signOut}>Sign out</button></div></details>`;
}

// What stands above every page while something is wrong with what is shown.
function Said({ path }) {
  useStore(clock, ({ tick }) => tick);
  const state = useStore(pulse);
  const [kind, before, behind] = pulseOf(state, now());
  const problems = state.cluster?.problems ?? [];
  if (kind === "bad") return html`<div class="said" data-is="bad" role="alert">${before[0].toUpperCase() + before.slice(1)}. What you see is from before; this page goes on by itself.</div>`;
  if (kind === "warn" && !state.cluster?.leader) return html`<div class="said" data-is="warn" role="alert">No node leads now, so nothing fires and nothing can be changed. ${behind[0].toUpperCase() + behind.slice(1)}.</div>`;
  // Those two pages list them.
  if (!problems.length || ["/", "/cluster"].includes(path)) return "";
  return html`<div class="said" data-is="warn" role="status">${problems.slice(0, 2).join(" ")} <a href=${link("/cluster")}>${problems.length > 2 ? `And ${many(problems.length - 2, "more problem")}` : "Look at the cluster"}</a></div>`;
}

// Menus close when something else is clicked, and by Escape, which gives the focus back.
function closeMenus(event) {
  for (const menu of document.querySelectorAll("details.menu[open], details.nav-more[open]")) {
    if (event.type === "keydown" ? event.key !== "Escape" : menu.contains(event.target)) continue;
    menu.open = false;
    if (event.type === "keydown") menu.querySelector("summary").focus();
  }
}

export function Shell({ children }) {
  const path = useStore(place, (one) => one.path);
  const signedOut = useStore(answers, (one) => one.signedOut);
  useStore(session);
  const [open, setOpen] = useState("");
  useEffect(() => {
    for (const kind of ["click", "keydown"]) document.addEventListener(kind, closeMenus);
    return () => ["click", "keydown"].forEach((kind) => document.removeEventListener(kind, closeMenus));
  }, []);
  useEffect(() => onKeys({
    "?": () => setOpen("help"), "mod+k": () => setOpen("palette"),
    ...Object.fromEntries(inNav.map((page) => [`g ${page.key}`, () => go(link(page.path))])),
  }), []);
  return html`<a class="skip" href="#page">To the page</a>
    <div class="frame">
      <${Nav} path=${path} />
      <div>
        <header class="top"><${Pulse} /><div class="top-set"><${Namespace} /><${View} /><${WhoAmI} /></div></header>
        <${Said} path=${path} />
        <main id="page" tabindex="-1">${signedOut ? html`<${SignIn} />` : children}</main>
      </div>
    </div>
    ${open === "palette" ? html`<${Palette} close=${() => setOpen("")} />` : ""}
    ${open === "help" ? html`<${Help} close=${() => setOpen("")} />` : ""}`;
}

