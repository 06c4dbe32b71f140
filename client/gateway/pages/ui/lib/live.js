// The page's end of the feed: what is followed here, and whom events are handed to.
import { useEffect, useRef } from "./dom.js";
import { leaderless } from "./api.js";
import { Feed } from "./feed.js";
import { prefix } from "./route.js";
import { store } from "./store.js";

const STILL_HERE_MS = 30_000;

// status: {is: live | connecting | lost | paused | refused, since}; cluster: GetClusterStatus with
// `at`; change: how far events have come; unreachable: {since, reason} while the gateway or its node does not answer.
export const pulse = store({ status: { is: "connecting", since: Date.now() }, cluster: null, unreachable: null, change: 0 });

const listeners = new Set();
let want = { namespace: "", filter: "" };
let post = () => {};

function take(message) {
  if (message.status) pulse.set({ status: message.status });
  if (message.cluster) {
    pulse.set({ cluster: message.cluster, unreachable: null });
    leaderless.set({ is: !message.cluster.leader });
  }
  if (message.unreachable) pulse.set({ unreachable: message.unreachable });
  if (message.place) pulse.set({ change: Number.parseInt(message.place, 10) });
  if (message.events || message.reset || message.many) for (const one of [...listeners]) one(message);
}

const send = (more = {}) => post({ prefix, want: document.hidden ? null : want, ...more });

export function startLive() {
  if (globalThis.SharedWorker) {
    const worker = new SharedWorker(new URL("./worker.js", import.meta.url), { type: "module", name: `raftsched${prefix}` });
    worker.port.onmessage = ({ data }) => take(data);
    post = (message) => worker.port.postMessage(message);
  } else {
    const feed = new Feed(prefix, take);
    post = (message) => feed.follow(message.leaving ? null : message.want);
  }
  addEventListener("visibilitychange", () => send());
  addEventListener("pagehide", () => send({ leaving: true }));
  addEventListener("pageshow", () => send());
  setInterval(() => send(), STILL_HERE_MS);
  send();
}

// What this page follows from now on; the filter is that of WatchEvents ("job=report").
export function follow(next) {
  if (next.namespace === want.namespace && next.filter === want.filter) return;
  want = next;
  send();
}

// Hand `take` what comes: {events}, {many} (too many to show one by one) or {reset} (some are gone):
// after the last two a list is to be asked for again.
export function useLive(taker, namespace) {
  const held = useRef(taker);
  held.current = taker;
  useEffect(() => {
    const one = (message) => {
      if (!message.events) return held.current(message);
      const events = message.events.filter((event) => !event.namespace || event.namespace === (namespace || "default"));
      if (events.length) held.current({ ...message, events });
    };
    listeners.add(one);
    return () => listeners.delete(one);
  }, [namespace]);
}
