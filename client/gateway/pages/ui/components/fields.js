// Fields of forms. A field has a label, help, and the fault that the API named, at its own place.
import { html, useEffect, useRef, useState } from "../lib/dom.js";
import { durationMs, durationOf, lengthTyped, typedLength } from "../lib/time.js";

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
      list=${list ? `${id}-list` : undefined} disabled=${disabled} autocomplete="off" spellcheck=${false} />
    ${list ? html`<datalist id="${id}-list">${list.map((one) => html`<option value=${one}></option>`)}</datalist>` : ""}
  </${Field}>`;
}

export function Area({ value, put, rows = 6, placeholder, ...field }) {
  const id = useId();
  return html`<${Field} whole ...${field} id=${id}>
    <textarea ...${about({ ...field, id })} rows=${rows} value=${value ?? ""} onInput=${said(put)} placeholder=${placeholder} spellcheck=${false}></textarea>
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

// A field for a length of time, as people write it: 90s, 5m, 1h30m. What is no length is said at
// the field, and is not put.

// `value` is a Duration of the API ("90s"); `put` gets one, or undefined for nothing.
export function LengthField({ value, put, label, help, path, faults, placeholder }) {
  const id = useId();
  const [text, setText] = useState(lengthTyped(durationMs(value)));
  useEffect(() => {
    if (typedLength(text) !== durationMs(value)) setText(lengthTyped(durationMs(value)));
  }, [value]);
  const wrong = text.trim() && typedLength(text) === undefined;
  const own = wrong ? [{ field: path, description: "write a length of time, such as 90s, 5m or 1h30m" }] : faults;
  const type = (typed) => {
    setText(typed);
    const size = typedLength(typed);
    if (!typed.trim()) put(undefined);
    else if (size !== undefined) put(durationOf(size));
  };
  const field = { id, label, help, path, faults: own };
  return html`<${Field} ...${field}><input ...${about(field)} type="text" value=${text} onInput=${(event) => type(event.target.value)} placeholder=${placeholder}
    autocomplete="off" spellcheck=${false} /></${Field}>`;
}
