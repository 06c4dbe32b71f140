// Fields of forms. A field has a label, help, and the fault that the API named, at its own place.
import { html, useRef } from "../lib/dom.js";

let numbers = 0;
// An id that this part of the page alone has.
export function useId() {
  const id = useRef("");
  id.current ||= `field-${(numbers += 1)}`;
  return id.current;
}

// `faults`: the field violations of an ApiError; `path`: which of them are this field's.
export const faultOf = (faults, path) => (faults ?? []).find((fault) => path && (fault.field === path || fault.field?.startsWith(`${path}.`) || fault.field?.startsWith(`${path}[`)))?.description;

// `id` is that of the control; `about(id)` gives the control what ties both together.
export function Field({ id, label, help, path, faults, whole, children }) {
  const wrong = faultOf(faults, path);
  return html`<div class="field ${whole ? "whole" : ""}"><label for=${id}>${label}</label>${children}
    ${wrong ? html`<span class="wrong" role="alert" id="${id}-help">${wrong}</span>` : help ? html`<span class="help" id="${id}-help">${help}</span>` : ""}</div>`;
}

export function about({ id, help, path, faults }) {
  const wrong = faultOf(faults, path);
  return { id, "aria-invalid": wrong ? "true" : undefined, "aria-describedby": wrong || help ? `${id}-help` : undefined };
}

const said = (put) => (event) => put(event.target.value);

export function Text({ value, put, placeholder, list, kind = "text", mono, disabled, ...field }) {
  const id = useId();
  return html`<${Field} ...${field} id=${id}>
    <input ...${about({ ...field, id })} type=${kind} class=${mono ? "mono" : ""} value=${value ?? ""} onInput=${said(put)} placeholder=${placeholder}
      list=${list ? `${id}-list` : undefined} disabled=${disabled} autocomplete="off" spellcheck="false" />
    ${list ? html`<datalist id="${id}-list">${list.map((one) => html`<option value=${one}></option>`)}</datalist>` : ""}
  </${Field}>`;
}

export function Area({ value, put, rows = 6, placeholder, ...field }) {
  const id = useId();
  return html`<${Field} whole ...${field} id=${id}>
    <textarea ...${about({ ...field, id })} rows=${rows} value=${value ?? ""} onInput=${said(put)} placeholder=${placeholder} spellcheck="false"></textarea>
  </${Field}>`;
}

// `options`: [value, word] pairs.
export function Choice({ value, put, options, ...field }) {
  const id = useId();
  return html`<${Field} ...${field} id=${id}>
    <select ...${about({ ...field, id })} value=${value ?? ""} onChange=${said(put)}>${options.map(([one, word]) => html`<option value=${one} selected=${one === (value ?? "")}>${word}</option>`)}</select>
  </${Field}>`;
}

export const Check = ({ value, put, label, title }) => html`<label class="check" title=${title}><input type="checkbox" checked=${value} onChange=${(event) => put(event.target.checked)} />${label}</label>`;
