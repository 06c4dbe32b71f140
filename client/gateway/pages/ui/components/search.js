// The filter of a list: the API's own language, with completion of its fields and values. Plain
// words look for names that contain them. "/" goes here.
import { html, useEffect, useRef, useState } from "../lib/dom.js";
import { onKeys } from "../lib/keys.js";

// Whether a text is a filter already; plain words are none.
export const isFilter = (text) => /[=<>:()"]/.test(text);

// "night report" as `name:night AND name:report`.
export function filterOf(text, field = "name") {
  const trimmed = text.trim();
  if (!trimmed || isFilter(trimmed)) return trimmed;
  return trimmed.split(/\s+/).map((word) => `${field}:${word}`).join(" AND ");
}

// What could stand where the cursor is. `fields`: {name: {values?, help}}.
export function completions(text, cursor, fields) {
  const before = text.slice(0, cursor);
  const word = /[^\s()]*$/.exec(before)[0];
  const cut = /^([\w.-]+?)(<=|>=|!=|=|:|<|>)(.*)$/.exec(word);
  if (!cut) {
    const fits = Object.entries(fields).filter(([name]) => word && name.toLowerCase().startsWith(word.toLowerCase()));
    return fits.map(([name, field]) => ({ put: `${name}${field.sign ?? "="}`, help: field.help, from: cursor - word.length }));
  }
  const [, name, sign, value] = cut;
  const values = (fields[name]?.values ?? []).filter((one) => one.toLowerCase().startsWith(value.toLowerCase()) && one !== value);
  return values.map((one) => ({ put: `${name}${sign}${one} `, help: "", from: cursor - word.length }));
}

export function Search({ value, put, fields, placeholder, label = "Filter" }) {
  const [text, setText] = useState(value);
  const [offered, setOffered] = useState([]);
  const [at, setAt] = useState(0);
  const input = useRef(null);
  useEffect(() => setText(value), [value]);
  useEffect(() => onKeys({ "/": () => (input.current.focus(), input.current.select()) }), []);
  const look = () => {
    setOffered(completions(input.current.value, input.current.selectionStart, fields).slice(0, 12));
    setAt(0);
  };
  const take = (one) => {
    const made = text.slice(0, one.from) + one.put + text.slice(input.current.selectionStart).trimStart();
    const cursor = one.from + one.put.length;
    // At once, so that what is typed next stands behind it.
    input.current.value = made;
    input.current.setSelectionRange(cursor, cursor);
    input.current.focus();
    setText(made);
    look();
  };
  const done = (made) => {
    setOffered([]);
    if (made !== value) put(made.trim());
  };
  const keys = (event) => {
    if (event.key === "ArrowDown" && offered.length) setAt((at + 1) % offered.length);
    else if (event.key === "ArrowUp" && offered.length) setAt((at + offered.length - 1) % offered.length);
    else if (event.key === "Tab" && offered.length && !event.shiftKey) take(offered[at]);
    else if (event.key === "Enter") done(text);
    else if (event.key === "Escape") offered.length ? setOffered([]) : input.current.blur();
    else return;
    event.preventDefault();
  };
  return html`<div class="search" role="search">
    <input ref=${input} type="search" value=${text} placeholder=${placeholder} aria-label=${label} autocomplete="off" spellcheck=${false}
      role="combobox" aria-expanded=${offered.length > 0} aria-controls="completions" aria-autocomplete="list" aria-activedescendant=${offered.length ? `completion-${at}` : undefined}
      onInput=${(event) => { setText(event.target.value); look(); if (!event.target.value) done(""); }} onKeyDown=${keys}
      onBlur=${() => setTimeout(() => done(input.current?.value ?? value), 150)} />
    ${text ? "" : html`<kbd class="hint">/</kbd>`}
    ${offered.length ? html`<ul id="completions" role="listbox">${offered.map((one, place) => html`<li id=${`completion-${place}`} role="option" aria-selected=${place === at} onMouseDown=${(event) => { event.preventDefault(); take(one); }}><code>${one.put}</code><span>${one.help}</span></li>`)}</ul>` : ""}
  </div>`;
}
