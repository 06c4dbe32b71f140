// A field for a length of time, as people write it: 90s, 5m, 1h30m. What is no length is said at
// the field, and is not put.
import { html, useEffect, useState } from "../lib/dom.js";
import { durationMs, durationOf, lengthTyped, typedLength } from "../lib/time.js";
import { about, Field, useId } from "./fields.js";

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
    autocomplete="off" spellcheck="false" /></${Field}>`;
}
