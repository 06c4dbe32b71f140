// Where it begins: which page the address names, in the frame.
import { Shell } from "./components/shell.js";
import { Empty, Failed, Loading } from "./components/notes.js";
import { html, render, useEffect, useErrorBoundary, useState } from "./lib/dom.js";
import { startKeys } from "./lib/keys.js";
import { follow, startLive } from "./lib/live.js";
import { link, match, place, startRouting } from "./lib/route.js";
import { session, startSession } from "./lib/session.js";
import { useStore } from "./lib/store.js";
import { startClock } from "./lib/time.js";
import { PAGES } from "./registry.js";

function find(path) {
  for (const page of PAGES) {
    const found = match(page.path, path);
    if (found) return { page, found };
  }
  return null;
}

// What a page's own code failed over is shown in its place; the frame stays.
function Guarded({ children }) {
  const [error, reset] = useErrorBoundary((fault) => console.error(fault));
  if (error) return html`<div class="page"><${Failed} error=${{ reason: "PAGE", message: `This page has a fault: ${error.message}. Please report it.` }} again=${reset} /></div>`;
  return children;
}

function Routed() {
  const path = useStore(place, (one) => one.path);
  const ns = useStore(place, (one) => one.params.ns ?? "");
  const [parts, setParts] = useState(new Map());
  // What is offered follows from who we are.
  useStore(session, (one) => one.caller);
  const at = find(path);
  useEffect(() => {
    if (!at || parts.has(at.page)) return;
    at.page.load().then(
      (part) => setParts((before) => new Map(before).set(at.page, part.Page)),
      (fault) => setParts((before) => new Map(before).set(at.page, () => html`<div class="page"><${Failed} error=${{ reason: "PAGE", message: `The page could not be loaded: ${fault.message}` }} again=${() => location.reload()} /></div>`)),
    );
  }, [at?.page]);
  useEffect(() => {
    follow({ namespace: ns || "default", filter: at?.page.follows?.(at.found) ?? "" });
    document.title = [...Object.values(at?.found ?? {}), at?.page.title ?? at?.page.nav, "raftsched"].filter(Boolean).join(" · ");
  }, [path, ns]);
  if (!at) return html`<div class="page"><${Empty} title="There is no such page"><p>Nothing has the address <code>${path}</code>.</p><a class="button" href=${link("/")}>To the beginning</a></${Empty}></div>`;
  const Part = parts.get(at.page);
  if (!Part) return html`<div class="page"><${Loading} /></div>`;
  return html`<${Guarded} key=${`${path} ${ns}`}><${Part} ...${at.found} /></${Guarded}>`;
}

startRouting();
startKeys();
startClock();
startSession();
startLive();
const app = document.getElementById("app");
app.textContent = "";
render(html`<${Shell}><${Routed} /></${Shell}>`, app);
