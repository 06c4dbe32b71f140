// Where the page is. All of its state stands in the address: the path names the page and what it is
// about, the query how it is shown. `ns` is the namespace and goes along with every link.
import { store, useStore } from "./store.js";

export const prefix = globalThis.document?.body?.dataset.prefix ?? "";
// What is under the same roof and no page of ours.
const OTHERS = /^\/(v1|api|docs|ui|session|openapi\.json)(\/|$)/;

export function parsed(href) {
  const url = new URL(href, globalThis.location?.href ?? "http://localhost/");
  const path = url.pathname.startsWith(`${prefix}/`) ? url.pathname.slice(prefix.length) : url.pathname;
  return { path: path.replace(/(.)\/+$/, "$1") || "/", params: Object.fromEntries(url.searchParams) };
}

export const place = store(globalThis.location ? parsed(location.href) : { path: "/", params: {} });
export const namespace = () => place.get().params.ns ?? "";
export const useParams = () => useStore(place, (one) => one.params);

function query(params) {
  const kept = Object.entries(params).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return kept.length ? `?${new URLSearchParams(kept)}` : "";
}

// The address of a page; parts of the path are joined and quoted.
export function link(parts, params = {}) {
  const path = [parts].flat().map((part, at) => (at || !part.startsWith("/") ? encodeURIComponent(part) : part));
  return prefix + path.join("/").replace(/^\/\//, "/") + query({ ns: namespace(), ...params });
}

// Go to an address of ours; with `replace` the present one is not kept for "back".
export function go(href, replace = false) {
  history[replace ? "replaceState" : "pushState"](null, "", href);
  const before = place.get().path;
  place.set(() => parsed(href));
  if (!replace && place.get().path !== before) scrollTo(0, 0);
}

// Change parts of the query; what is empty goes.
export function setParams(changed, replace = false) {
  const { path, params } = place.get();
  go(prefix + path + query({ ...params, ...changed }), replace);
}

// Take clicks on links to our own pages, and "back" and "forward".
export function startRouting() {
  addEventListener("popstate", () => place.set(() => parsed(location.href)));
  document.addEventListener("click", (event) => {
    const anchor = event.target.closest?.("a[href]");
    const special = event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey;
    if (!anchor || special || event.defaultPrevented || anchor.target || anchor.hasAttribute("download")) return;
    const url = new URL(anchor.href);
    const inside = url.origin === location.origin && (url.pathname + "/").startsWith(`${prefix}/`);
    if (!inside || OTHERS.test(url.pathname.slice(prefix.length)) || url.hash) return;
    event.preventDefault();
    go(url.pathname + url.search);
  });
}

// "/jobs/:job" against "/jobs/report": {job: "report"}, or null.
export function match(pattern, path) {
  const wanted = pattern.split("/");
  const given = path.split("/");
  if (wanted.length !== given.length) return null;
  const found = {};
  for (const [at, part] of wanted.entries()) {
    if (part.startsWith(":")) {
      try {
        found[part.slice(1)] = decodeURIComponent(given[at]);
      } catch {
        return null; // Not an address anybody has made for a page.
      }
    } else if (part !== given[at]) return null;
  }
  return found;
}
