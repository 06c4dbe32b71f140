// A value that several parts of the page look at.
import { useEffect, useState } from "./dom.js";

export function store(first) {
  let value = first;
  const watching = new Set();
  return {
    get: () => value,
    set(next) {
      const made = typeof next === "function" ? next(value) : { ...value, ...next };
      if (made === value) return;
      value = made;
      for (const one of [...watching]) one(value);
    },
    watch(one) {
      watching.add(one);
      return () => watching.delete(one);
    },
  };
}

// What `pick` takes of a store; the part is drawn again only when that is another value.
export function useStore(held, pick = (value) => value) {
  const [seen, setSeen] = useState(() => pick(held.get()));
  useEffect(() => {
    const look = (value) => setSeen(() => pick(value));
    look(held.get());
    return held.watch(look);
  }, [held]);
  return seen;
}

// What somebody chose for this browser; without storage it lasts as long as the page.
export function chosen(name, first) {
  let text = null;
  try {
    text = localStorage.getItem(`raftsched.${name}`);
  } catch {
    text = null; // Storage is shut off: the first value holds.
  }
  return text ?? first;
}

export function choose(name, text) {
  try {
    localStorage.setItem(`raftsched.${name}`, text);
  } catch {
    return false; // Storage is shut off or full: the choice holds for this page alone.
  }
  return true;
}
