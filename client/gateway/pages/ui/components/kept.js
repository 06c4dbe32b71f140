// Small things of the cluster that are listed, made, changed and deleted in one place.
import { read, write } from "../lib/api.js";
import { html, useState } from "../lib/dom.js";
import { useList } from "../lib/list.js";
import { can } from "../lib/session.js";
import { Ask } from "./ask.js";
import { Button } from "./bits.js";
import { Area, Text } from "./fields.js";
import { Columns, List } from "./table.js";

export const at = (path, name) => `${path}/${encodeURIComponent(name)}`;

// `kind`: {what, path, rows, query, calls: {make, change, remove}, where (of `can`), change (by
// events), ask (in place of path and rows), verb (of the second button)}. `columns`: without the
// buttons, which are put behind them. `Form({of, close, done})`; `gone(one)`: what a deletion means.
export function Kept({ kind, columns, Form, gone, intro, none, choice = false, more = "" }) {
  const ask = async ({ pageSize, pageToken }, signal) => {
    const found = await read(kind.path, { ...kind.query, pageSize, pageToken }, { signal });
    return { ...found, rows: found[kind.rows] ?? [] };
  };
  const idOf = (one) => one.name;
  const list = useList({ name: `${kind.what} ${JSON.stringify(kind.query)}`, ask: kind.ask ?? ask, idOf, change: kind.change ?? (() => null) });
  const [asking, setAsking] = useState(null);
  const [made, setMade] = useState(null);
  const may = (call) => call && can(call, kind.where);
  const begin = (next) => (setMade(null), setAsking(next));
  const close = () => setAsking(null);
  const done = (answer) => (setMade(answer), list.again());
  const remove = async () => (await write("DELETE", at(kind.path, asking.gone.name), { query: kind.query, etag: asking.gone.etag }), list.again());
  const removing = kind.verb ?? "Delete";
  const acts = { name: "acts", title: "", num: true, cell: (one) => html`<span class="bar tight">
    ${may(kind.calls.change) ? html`<${Button} onClick=${() => begin({ of: one })}>${kind.changing ?? "Change"}…</${Button}>` : ""}
    ${may(kind.calls.remove) && !kind.stays?.(one) ? html`<${Button} kind="bad" onClick=${() => begin({ gone: one })}>${removing}…</${Button}>` : ""}</span>` };
  return html`
    <div class="bar">${intro}<span class="grow"></span>
      ${may(kind.calls.make) ? html`<${Button} kind="main" onClick=${() => begin({})}>New ${kind.what}</${Button}>` : ""}${choice ? html`<${Columns} columns=${columns} />` : ""}</div>
    ${typeof more === "function" ? more(made, () => setMade(null)) : more}
    ${asking?.gone ? html`<${Ask} key="gone" title=${`${removing} the ${kind.what} ${asking.gone.name}`} yes="${removing} it" kind="bad" act=${remove} close=${close}><p>${gone(asking.gone)}</p></${Ask}>`
      : asking ? html`<${Form} key=${asking.of?.name ?? ""} of=${asking.of} rows=${list.rows} close=${close} done=${done} />` : ""}
    <${List} list=${{ ...list, q: "" }} columns=${[...columns, acts]} idOf=${idOf} label=${`${kind.what}s`} none=${none} />`;
}

// A form as one value, with a setter for each of its fields.
export function useForm(first) {
  const [form, setForm] = useState(first);
  return [form, (name) => (value) => setForm((before) => ({ ...before, [name]: value }))];
}

export function Edit({ what, of, act, close, ready, children }) {
  return html`<${Ask} title=${of ? `Change the ${what} ${of.name}` : `A new ${what}`} yes=${of ? "Keep it" : "Make it"} act=${act} close=${close} ready=${ready}>${children}</${Ask}>`;
}

// Fields beside each other: [name, label, help, placeholder, wrong].
export const Texts = ({ form, put, fields }) => fields.map(([name, label, help, placeholder, wrong]) => html`<${Text} key=${name} label=${label} help=${help} placeholder=${placeholder} value=${form[name]} put=${put(name)} ...${faulty(wrong)} />`);
export const Lines = ({ wrong, ...rest }) => html`<${Area} ...${rest} ...${faulty(wrong)} />`;
const faulty = (wrong) => (wrong ? { path: "typed", faults: [{ field: "typed", description: wrong }] } : {});
export const whole = (text, digits = 15) => new RegExp(`^\\d{0,${digits}}$`).test(text);
export const NUMBER = "a whole number";
