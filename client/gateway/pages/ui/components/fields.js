// Fields of forms. A field has a label, help, and the fault that the API named, at its own place.
import { html } from "../lib/dom.js";

let numbers = 0;
const ids = new WeakMap();
function idOf(owner) {
  if (!ids.has(owner)) ids.set(owner, `field-${(numbers += 1)}`);
  return ids.get(owner);
}

// `faults`: the field violations of an ApiError; `path`: which of them are this field's.
export const faultOf = (faults, path) => (faults ?? []).find((fault) => path && (fault.field === path || fault.field?.startsWith(`${path}.`) || fault.field?.startsWith(`${path}[`)))?.description;

export function Field({ label, help, path, faults, whole, children }) {
  const wrong = faultOf(faults, path);
  return html`<div class="field ${whole ? "whole" : ""}">
    <label class="field"><span class="label">${label}</span>${children}</label>
    ${wrong ? html`<span class="wrong" role="alert">${wrong}</span>` : help ? html`<span class="help">${help}</span>` : ""}
  </div>`;
}

const said = (put) => (event) => put(event.target.value);

export function Text({ value, put, label, help, path, faults, whole, placeholder, list, kind = "text", mono, disabled }) {
  const key = list ? idOf(list) : undefined;
  return html`<${Field} ...${{ label, help, path, faults, whole }}>
    <input type=${kind} class=${mono ? "mono" : ""} value=${value ?? ""} onInput=${said(put)} placeholder=${placeholder} list=${key} disabled=${disabled}
      autocomplete="off" spellcheck="false" aria-invalid=${faultOf(faults, path) ? "true" : undefined} />
    ${list ? html`<datalist id=${key}>${list.map((one) => html`<option value=${one}></option>`)}</datalist>` : ""}
  </${Field}>`;
}

export function Area({ value, put, label, help, path, faults, rows = 6, placeholder }) {
  return html`<${Field} whole ...${{ label, help, path, faults }}>
    <textarea rows=${rows} value=${value ?? ""} onInput=${said(put)} placeholder=${placeholder} spellcheck="false" aria-invalid=${faultOf(faults, path) ? "true" : undefined}></textarea>
  </${Field}>`;
}

// `options`: [value, word] pairs.
export function Choice({ value, put, label, help, path, faults, options, whole }) {
  return html`<${Field} ...${{ label, help, path, faults, whole }}>
    <select value=${value ?? ""} onChange=${said(put)}>${options.map(([one, word]) => html`<option value=${one} selected=${one === (value ?? "")}>${word}</option>`)}</select>
  </${Field}>`;
}

export const Check = ({ value, put, label, title }) => html`<label class="check" title=${title}><input type="checkbox" checked=${value} onChange=${(event) => put(event.target.checked)} />${label}</label>`;
