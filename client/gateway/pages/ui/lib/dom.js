// The one place that names the library.
import { html as made } from "../vendor/htm-preact.js";
import { visible } from "./format.js";

export {
  createContext, h, render, useCallback, useContext, useEffect, useErrorBoundary, useLayoutEffect, useMemo,
  useReducer, useRef, useState,
} from "../vendor/htm-preact.js";

// Attributes that people read; the values of others are what they are.
const READ = /\s(title|aria-label|placeholder|label)=("[^"]*)?$/;
const places = new WeakMap();

// Which holes of a template are for people to read: what stands between tags, and those attributes.
export function readHoles(strings) {
  let [tag, quote] = [null, ""];
  return strings.slice(0, -1).map((piece) => {
    for (const sign of piece) {
      if (tag === null) {
        if (sign === "<") tag = "";
        continue;
      }
      if (quote) quote = sign === quote ? "" : quote;
      else if (sign === '"') quote = sign;
      else if (sign === ">") {
        tag = null;
        continue;
      }
      tag += sign;
    }
    return tag === null || READ.test(tag);
  });
}

const shown = (value) => (typeof value === "string" ? visible(value) : Array.isArray(value) ? value.map(shown) : value);

// Whatever a name or a message holds, nothing in it is unseen or turns the text around it.
export function html(strings, ...values) {
  if (!places.has(strings)) places.set(strings, readHoles(strings));
  const read = places.get(strings);
  return made(strings, ...values.map((value, at) => (read[at] ? shown(value) : value)));
}
