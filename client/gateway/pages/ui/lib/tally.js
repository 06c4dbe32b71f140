// How many events of a kind came in the last minute, by what they are about, as this page saw them.
import { useEffect, useRef, useState } from "./dom.js";
import { useLive } from "./live.js";
import { now } from "./time.js";

export const WINDOW_MS = 60_000;
const SLOT_MS = 5_000;
const NAMES_MAX = 1_000;

export class Tally {
  constructor(at) {
    this.begin(at);
  }

  // From here on; what was before is not known.
  begin(at) {
    this.since = at;
    this.slots = [];
  }

  add(name, at) {
    const slot = Math.floor(at / SLOT_MS);
    if (this.slots.at(-1)?.slot !== slot) this.slots.push({ slot, counts: new Map() });
    const { counts } = this.slots.at(-1);
    if (counts.has(name) || counts.size < NAMES_MAX) counts.set(name, (counts.get(name) ?? 0) + 1);
    this.drop(at);
  }

  drop(at) {
    const first = Math.floor((at - WINDOW_MS) / SLOT_MS);
    while (this.slots.length && this.slots[0].slot <= first) this.slots.shift();
  }

  // {count, over}: how many, and in how many milliseconds.
  of(name, at) {
    this.drop(at);
    const count = this.slots.reduce((sum, slot) => sum + (slot.counts.get(name) ?? 0), 0);
    return { count, over: Math.min(WINDOW_MS, at - this.since) };
  }
}

// `nameOf(event)`: what it counts for, or null. Where more came than can be looked at, it begins anew.
export function useTally(nameOf, namespace) {
  const tally = useRef(null);
  tally.current ??= new Tally(now());
  const [, draw] = useState(0);
  useLive((message) => {
    if (!message.events) return tally.current.begin(now());
    for (const event of message.events) {
      const name = nameOf(event);
      if (name) tally.current.add(name, now());
    }
  }, namespace);
  useEffect(() => {
    const timer = setInterval(() => document.hidden || draw((turn) => turn + 1), SLOT_MS);
    return () => clearInterval(timer);
  }, []);
  return tally.current;
}
