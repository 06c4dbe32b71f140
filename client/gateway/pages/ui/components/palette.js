// Ctrl-K: go to a page, a job or a run. "?": the keys.
import { read } from "../lib/api.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "../lib/dom.js";
import { go, link, namespace } from "../lib/route.js";
import { inNav } from "../registry.js";
import { filterOf, isFilter } from "./search.js";

const JOBS_MAX = 8;
const TYPING_MS = 120;
// As Run.id is made: "report.17.1763456400000".
const RUN_ID = /^[a-z0-9_-]+\.\d+\.\d+(\.\d+)?$/;

function useDialog(close) {
  const dialog = useRef(null);
  // Before the next key is pressed, which is meant for it.
  useLayoutEffect(() => {
    const before = document.activeElement;
    dialog.current.showModal();
    return () => before?.focus?.();
  }, []);
  return {
    ref: dialog,
    onClose: close,
    onClick: (event) => event.target === dialog.current && close(),
  };
}

export function Palette({ close }) {
  const [text, setText] = useState("");
  const [jobs, setJobs] = useState([]);
  const [at, setAt] = useState(0);
  const list = useRef(null);
  const wanted = text.trim();
  useEffect(() => {
    setAt(0);
    if (!wanted || isFilter(wanted)) return setJobs([]);
    const abort = new AbortController();
    const timer = setTimeout(() => {
      read("/v1/jobs", { namespace: namespace(), filter: filterOf(wanted.toLowerCase()), pageSize: JOBS_MAX }, { signal: abort.signal })
        .then(({ jobs: found }) => setJobs((found ?? []).map((job) => job.name)))
        .catch(() => setJobs([])); // Pages are still offered; the page itself says what is wrong.
    }, TYPING_MS);
    return () => (clearTimeout(timer), abort.abort());
  }, [wanted]);
  const fits = (word) => word.toLowerCase().includes(wanted.toLowerCase());
  const offered = [
    ...(RUN_ID.test(wanted) ? [{ word: wanted, kind: "run", href: link(["/runs", wanted]) }] : []),
    ...inNav.filter((page) => fits(page.nav)).map((page) => ({ word: page.nav, kind: `g ${page.key}`, href: link(page.path) })),
    ...(wanted && fits("new job") ? [{ word: "New job", kind: "make", href: link("/new-job") }] : []),
    ...jobs.map((name) => ({ word: name, kind: "job", href: link(["/jobs", name]) })),
    ...(wanted ? [{ word: `Jobs that fit ${wanted}`, kind: "search", href: link("/jobs", { q: wanted }) }] : []),
  ];
  const take = (one) => one && (close(), go(one.href));
  const keys = (event) => {
    if (event.key === "ArrowDown") setAt((at + 1) % offered.length);
    else if (event.key === "ArrowUp") setAt((at + offered.length - 1) % offered.length);
    else if (event.key === "Enter") take(offered[at]);
    else if (event.key === "Escape") close(); // A browser would empty the box first.
    else return;
    event.preventDefault();
    list.current?.children[at]?.scrollIntoView({ block: "nearest" });
  };
  return html`<dialog class="palette" aria-label="Go to" ...${useDialog(close)}>
    <input type="search" autofocus placeholder="A page, a job, the id of a run" value=${text} onInput=${(event) => setText(event.target.value)} onKeyDown=${keys}
      role="combobox" aria-expanded="true" aria-controls="goto" aria-label="Go to" aria-activedescendant=${`goto-${at}`} autocomplete="off" spellcheck=${false} />
    <ul id="goto" role="listbox" ref=${list} aria-label="Places">${offered.map((one, place) => html`<li id=${`goto-${place}`} role="option" aria-selected=${place === at} onClick=${() => take(one)}>${one.word}<span>${one.kind}</span></li>`)}</ul>
  </dialog>`;
}

const KEYS = [
  ["Ctrl K", "go to a page, a job or a run"], ["/", "filter the list"], ["j  k", "next row, row before"], ["Enter", "open the row"],
  ["x", "pick the row"], ["Shift and click", "pick all in between"], ["?", "this"], ["Esc", "close"],
];

export function Help({ close }) {
  const rows = [...KEYS, ...inNav.map((page) => [`g ${page.key}`, page.nav])];
  return html`<dialog aria-label="Keys" ...${useDialog(close)}><div class="inside"><h2>Keys</h2>
    <dl class="pairs">${rows.map(([key, word]) => html`<dt><kbd>${key}</kbd></dt><dd>${word}</dd>`)}</dl>
    <form method="dialog"><button class="button">Close</button></form></div></dialog>`;
}
