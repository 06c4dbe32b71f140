// The feed of this browser, shared by all its pages: two open pages are one connection.
import { Feed, union } from "./feed.js";

// A page says this often that it is still there; one that was closed without a word is forgotten.
const FORGET_MS = 90_000;
const pages = new Map();
let feed = null;

function follow() {
  const limit = Date.now() - FORGET_MS;
  for (const [port, page] of pages) if (page.heard < limit) pages.delete(port);
  feed?.follow(union([...pages.values()].map((page) => page.want).filter(Boolean)));
}

function say(message) {
  for (const [port, page] of pages) if (page.want || message.status) port.postMessage(message);
}

self.onconnect = ({ ports: [port] }) => {
  pages.set(port, { want: null, heard: Date.now() });
  port.onmessage = ({ data }) => {
    feed ??= new Feed(data.prefix, say);
    if (data.leaving) pages.delete(port);
    else pages.set(port, { want: data.want, heard: Date.now() });
    follow();
    port.postMessage({ status: feed.status });
    if (feed.cluster) port.postMessage({ cluster: feed.cluster });
  };
};
setInterval(follow, FORGET_MS / 3);
