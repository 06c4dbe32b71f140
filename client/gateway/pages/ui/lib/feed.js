// The one connection of a browser that stays open: events, resumed by revision, and the state of
// the cluster. It runs in a SharedWorker for all pages of the browser, or in the page where there is
// none. Pages say what they look at; when none looks, nothing is asked.

// Without a word for so long the stream is dead; the gateway says something each 15 s.
export const SILENCE_MS = 35_000;
export const BATCH_MS = 200;
// More events than this in one batch are not shown one by one: pages ask for their lists again.
export const BATCH_MAX = 400;
export const BLOCK_MAX = 8 << 20;
const POLL_MS = 2_000;
const ANXIOUS_MS = 1_000;
const POLL_DEADLINE_MS = 4_000;
const WAIT_MS = [500, 1_000, 2_000, 5_000, 10_000];
// Reasons after which the place is no use any more: pages ask for their lists again.
const PLACELESS = new Set(["REVISION_GONE", "FIELD_INVALID"]);

// Blocks of Server-Sent Events, from pieces of text.
export class Blocks {
  constructor() {
    this.text = "";
  }

  take(piece) {
    this.text += piece;
    if (this.text.length > BLOCK_MAX) throw new Error("a block of the stream has no end");
    const blocks = this.text.split("\n\n");
    this.text = blocks.pop();
    return blocks.map((block) => {
      const made = { id: "", event: "", data: "" };
      for (const line of block.split("\n")) {
        const at = line.indexOf(":");
        const name = line.slice(0, at);
        if (name in made) made[name] += line.slice(at + 1).replace(/^ /, "");
      }
      return made;
    });
  }
}

// One stream for what several pages want: exactly that if they agree, else all.
export function union(wants) {
  const all = [...wants];
  if (!all.length) return null;
  const same = (name) => (all.every((one) => one[name] === all[0][name]) ? all[0][name] : "");
  return { namespace: same("namespace"), filter: all.every((one) => one.namespace === all[0].namespace) ? same("filter") : "" };
}

export class Feed {
  constructor(prefix, say, { fetch: fetcher = (...given) => fetch(...given), now = () => Date.now() } = {}) {
    Object.assign(this, { prefix, say, fetcher, now });
    this.want = null;
    this.last = "";
    this.batch = [];
    this.tries = 0;
    this.running = null;
    this.polling = null;
    this.status = { is: "connecting", since: now() };
    this.cluster = null;
  }

  // What is to be followed; null: nothing, the place is kept.
  follow(want) {
    const same = JSON.stringify(want) === JSON.stringify(this.want);
    if (same) return;
    const woke = this.want === null;
    this.want = want;
    this.running?.abort();
    this.running = null;
    if (!want) return this.report("paused");
    this.running = new AbortController();
    this.stay(want, this.running.signal);
    if (woke) this.poll((this.polling = {}));
  }

  report(is, more = {}) {
    if (this.status.is !== is) this.status = { is, since: this.now(), ...more };
    this.say({ status: this.status });
  }

  async stay(want, signal) {
    while (!signal.aborted) {
      try {
        await this.listen(want, signal);
      } catch (error) {
        if (signal.aborted) return;
        if (error.reason === "UNAUTHENTICATED") return this.report("refused", { message: error.message });
        if (PLACELESS.has(error.reason)) {
          this.last = "";
          this.say({ reset: true });
        }
      }
      if (signal.aborted) return;
      this.report("lost");
      const wait = WAIT_MS[Math.min(this.tries, WAIT_MS.length - 1)];
      this.tries += 1;
      await new Promise((done) => setTimeout(done, wait * (0.5 + Math.random() / 2)));
    }
  }

  async listen(want, signal) {
    const broken = new AbortController();
    const give = () => broken.abort();
    signal.addEventListener("abort", give);
    let silence = setTimeout(give, SILENCE_MS);
    try {
      const query = new URLSearchParams(Object.entries(want).filter(([, value]) => value));
      const headers = { accept: "text/event-stream" };
      if (this.last) headers["last-event-id"] = this.last;
      const answer = await this.fetcher(`${this.prefix}/v1/events:watch?${query}`, {
        headers, signal: broken.signal, cache: "no-store", credentials: "same-origin",
      });
      if (!answer.ok) throw await refused(answer);
      this.tries = 0;
      this.report("live");
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      const blocks = new Blocks();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        clearTimeout(silence);
        silence = setTimeout(give, SILENCE_MS);
        for (const block of blocks.take(value)) this.take(block);
      }
    } finally {
      clearTimeout(silence);
      signal.removeEventListener("abort", give);
      broken.abort();
    }
  }

  take({ id, event, data }) {
    if (id) this.last = id;
    if (event === "error") {
      const reason = reasonOf(JSON.parse(data));
      throw Object.assign(new Error("the stream ended"), { reason });
    }
    if (!data) return;
    if (!this.batch.length) setTimeout(() => this.flush(), BATCH_MS);
    if (this.batch.length <= BATCH_MAX) this.batch.push(JSON.parse(data));
  }

  flush() {
    const events = this.batch;
    this.batch = [];
    this.say(events.length > BATCH_MAX ? { many: true, place: this.last } : { events, place: this.last });
  }

  // How the cluster is, as the node beside the gateway sees it; it answers without a leader too.
  async poll(mine) {
    while (this.want && this.polling === mine) {
      try {
        const answer = await this.fetcher(`${this.prefix}/v1/cluster`, {
          cache: "no-store", credentials: "same-origin", signal: AbortSignal.timeout(POLL_DEADLINE_MS),
        });
        if (!answer.ok) throw await refused(answer);
        this.cluster = { ...(await answer.json()), at: this.now() };
        this.say({ cluster: this.cluster });
      } catch (error) {
        this.say({ unreachable: { since: this.cluster?.at ?? null, reason: error.reason ?? "CLUSTER_UNREACHABLE" } });
      }
      const calm = this.cluster?.leader && this.status.is === "live";
      await new Promise((done) => setTimeout(done, calm ? POLL_MS : ANXIOUS_MS));
    }
  }
}

const reasonOf = (body) => (body.error?.details ?? []).find((one) => one.reason)?.reason ?? "";

async function refused(answer) {
  const body = await answer.json().catch(() => ({})); // A proxy may answer with something else.
  return Object.assign(new Error(body.error?.message ?? `status ${answer.status}`), { reason: reasonOf(body) });
}
