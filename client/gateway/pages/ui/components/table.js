// The one table. A column is {name, title, cell(row), sort?, num?, kind?, lesser?, hidden?}: `sort`
// is its order_by, `lesser` goes first where it is narrow, `hidden` is shown when it is chosen.
// Which are shown stands in the address (`cols`).
import { html, useEffect, useRef, useState } from "../lib/dom.js";
import { number } from "../lib/format.js";
import { onKeys } from "../lib/keys.js";
import { go, setParams, useParams } from "../lib/route.js";
import { PAGE_SIZES } from "../lib/list.js";
import { Button } from "./bits.js";
import { Empty, Failed, Loading, Stale } from "./notes.js";

export function shownColumns(columns, chosen) {
  if (!chosen) return columns.filter((column) => !column.hidden);
  const names = new Set(chosen.split(","));
  return columns.filter((column, at) => at === 0 || names.has(column.name));
}

// Which columns are seen; the first one always is.
export function Columns({ columns }) {
  const { cols } = useParams();
  const shown = new Set(shownColumns(columns, cols).map((column) => column.name));
  const flip = (name) => {
    const next = columns.filter((column) => (column.name === name ? !shown.has(name) : shown.has(column.name)));
    const usual = shownColumns(columns, "").map((column) => column.name).join();
    const names = next.map((column) => column.name).join();
    setParams({ cols: names === usual ? "" : names }, true);
  };
  return html`<details class="menu"><summary class="button">Columns</summary><div>
    ${columns.slice(1).map((column) => html`<label class="check"><input type="checkbox" checked=${shown.has(column.name)} onChange=${() => flip(column.name)} />${column.title}</label>`)}
  </div></details>`;
}

// What is picked: a set of ids; the hook forgets those that are not listed any more.
export function usePicked(rows, idOf) {
  const [picked, setPicked] = useState(new Set());
  const last = useRef(null);
  const ids = (rows ?? []).map(idOf);
  const kept = new Set(ids.filter((id) => picked.has(id)));
  const flip = (id, withShift) => {
    const next = new Set(kept);
    const [from, to] = [ids.indexOf(last.current), ids.indexOf(id)].sort((one, other) => one - other);
    const on = !kept.has(id);
    for (const one of withShift && from >= 0 ? ids.slice(from, to + 1) : [id]) next[on ? "add" : "delete"](one);
    last.current = id;
    setPicked(next);
  };
  const all = ids.length > 0 && kept.size === ids.length;
  return { ids: kept, flip, all, flipAll: () => setPicked(all ? new Set() : new Set(ids)), clear: () => setPicked(new Set()) };
}

function Head({ column, list }) {
  if (!column.sort || !list) return html`<th class="${column.num ? "num" : ""} ${column.lesser ? "lesser" : ""}">${column.title}</th>`;
  const down = `${column.sort} desc`;
  const is = list.orderBy === column.sort ? "ascending" : list.orderBy === down ? "descending" : undefined;
  return html`<th class="${column.num ? "num" : ""} ${column.lesser ? "lesser" : ""}" aria-sort=${is}>
    <button type="button" onClick=${() => list.setOrder(is === "ascending" ? down : column.sort)}>${column.title}${is ? (is === "ascending" ? " ↑" : " ↓") : ""}</button></th>`;
}

// Rows alone. `open(row)` is the address that Enter goes to.
export function Table({ columns, rows, idOf, list, picked, open, fresh, label, empty = "Nothing here." }) {
  const params = useParams();
  const shown = shownColumns(columns, params.cols);
  const [at, setAt] = useState(-1);
  const body = useRef(null);
  // Keys may come faster than the table is drawn.
  const held = useRef({ at: -1 });
  Object.assign(held.current, { rows, picked, open });
  const move = (step) => {
    held.current.at = Math.max(0, Math.min(held.current.rows.length - 1, held.current.at + step));
    setAt(held.current.at);
  };
  const current = (act) => () => {
    const row = held.current.rows[held.current.at];
    if (row) act(row, held.current);
  };
  useEffect(() => { if (at >= 0) body.current?.children[at]?.scrollIntoView({ block: "nearest" }); }, [at]);
  useEffect(() => onKeys({
    j: () => move(1), k: () => move(-1),
    Enter: current((row, now) => now.open && go(now.open(row))),
    x: current((row, now) => now.picked?.flip(idOf(row))),
  }), []);
  if (!rows.length) return html`<p class="soft">${empty}</p>`;
  return html`<div class="table-frame" tabindex=${-1}><table class="table" aria-label=${label}>
    <thead><tr>
      ${picked ? html`<th class="pick"><input type="checkbox" aria-label="Pick all that are listed" checked=${picked.all} onChange=${picked.flipAll} /></th>` : ""}
      ${shown.map((column) => html`<${Head} key=${column.name} column=${column} list=${list} />`)}
    </tr></thead>
    <tbody ref=${body}>${rows.map((row, place) => html`<tr key=${idOf(row)} class="${place === at ? "at" : ""} ${fresh?.has(idOf(row)) ? "fresh" : ""}" aria-selected=${picked ? picked.ids.has(idOf(row)) : undefined}>
      ${picked ? html`<td class="pick"><input type="checkbox" aria-label=${`Pick ${idOf(row)}`} checked=${picked.ids.has(idOf(row))}
        onClick=${(event) => { event.preventDefault(); picked.flip(idOf(row), event.shiftKey); }} /></td>` : ""}
      ${shown.map((column) => html`<td key=${column.name} class="${column.num ? "num" : ""} ${column.kind ?? ""} ${column.lesser ? "lesser" : ""}">${column.cell(row)}</td>`)}
    </tr>`)}</tbody>
  </table></div>`;
}

// A whole list of lib/list.js in its four states, with its pages. `none` is what is shown where
// nothing fits and no filter is set; with a filter it says so, and offers to drop it.
export function List({ list, columns, idOf, picked, open, label, none }) {
  if (!list.rows) return list.error ? html`<${Failed} error=${list.error} again=${list.again} />` : html`<${Loading} rows=${12} />`;
  const begun = list.at !== "";
  return html`
    <${Stale} ageMs=${list.ageMs} />
    ${list.error ? html`<${Failed} error=${list.error} again=${list.again} />` : ""}
    ${list.waiting ? html`<${Button} kind="newer" onClick=${list.show}>${number(list.waiting)} new</${Button}>` : ""}
    ${list.rows.length ? html`<${Table} columns=${columns} rows=${list.rows} idOf=${idOf} list=${list} picked=${picked} open=${open} fresh=${list.fresh} label=${label} />`
      : list.next ? html`<${Empty} title="Nothing yet"><p>Of what was looked at so far nothing fits; there is more.</p></${Empty}>`
      : list.q ? html`<${Empty} title="Nothing fits"><p>No entry fits <code>${list.q}</code>.</p><${Button} onClick=${() => list.setFilter("")}>Show all</${Button}></${Empty}>`
      : begun ? html`<${Empty} title="The end of the list"><p>Nothing stands behind this.</p></${Empty}>`
      : none}
    <div class="table-foot">
      <span>${list.rows.length ? `${number(list.rows.length)} shown` : ""}${(list.next || begun) && list.count > list.rows.length ? ` of ${number(list.count)}${list.exact ? "" : "+"}` : ""}</span>
      ${begun ? html`<${Button} onClick=${list.first}>First page</${Button}>` : ""}
      ${list.next ? html`<${Button} onClick=${list.older}>${list.rows.length ? "Next page" : "Look further"}</${Button}>` : ""}
      ${list.next || list.size !== PAGE_SIZES[0] ? html`<label class="bar">Rows <select value=${list.size} onChange=${(event) => list.setSize(Number(event.target.value))}>
        ${PAGE_SIZES.map((count) => html`<option value=${count} selected=${count === list.size}>${count}</option>`)}</select></label>` : ""}
    </div>`;
}
