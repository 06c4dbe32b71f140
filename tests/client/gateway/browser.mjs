// A client of the gateways as a page would be: fetch and EventSource, and nothing of ours.
// node browser.mjs FIRST SECOND COUNT: create jobs through FIRST, watch there, go on at SECOND.

const [first, second, wanted] = [process.argv[2], process.argv[3], Number(process.argv[4])];

// Node 20 has no EventSource of its own; this one does what the standard says of one.
class Source {
  constructor(url, last = "") {
    this.url = url;
    this.last = last;
    this.retry = 1000;
    this.closed = false;
    this.listening = new AbortController();
    this.run();
  }

  async run() {
    while (!this.closed) {
      try {
        const headers = { accept: "text/event-stream" };
        if (this.last) headers["last-event-id"] = this.last;
        const answer = await fetch(this.url, { headers, signal: this.listening.signal });
        if (answer.status !== 200) throw new Error(`status ${answer.status}`);
        await this.read(answer.body.pipeThrough(new TextDecoderStream()));
      } catch (error) {
        if (this.closed) return;
        console.error(`the stream broke off: ${error.message}`);
      }
      await new Promise((done) => setTimeout(done, this.retry));
    }
  }

  async read(body) {
    let text = "";
    for await (const piece of body) {
      text += piece;
      const blocks = text.split("\n\n");
      text = blocks.pop();
      for (const block of blocks) this.take(block);
    }
  }

  take(block) {
    let data;
    for (const line of block.split("\n")) {
      const [name, value] = line.split(/: ?(.*)/s);
      if (name === "id") this.last = value;
      if (name === "retry") this.retry = Number(value);
      if (name === "data") data = value;
    }
    this.onopen?.();
    if (data !== undefined) this.onmessage?.({ data, lastEventId: this.last });
  }

  close() {
    this.closed = true;
    this.listening.abort();
  }
}

const watch = "/v1/events:watch?filter=kind%3DJOB_CREATED";
const seen = [];
const tell = (word) => process.stdout.write(`${JSON.stringify(word)}\n`);
let stream;

function open(gateway, last) {
  return new Promise((ready) => {
    stream = new Source(gateway + watch, last);
    stream.onopen = ready;
    stream.onmessage = (event) => seen.push(JSON.parse(event.data).job);
  });
}

// The same key again and again, until somebody has said that it is done.
async function create(gateway, name) {
  for (;;) {
    const answer = await fetch(`${gateway}/api/v1/jobs`, {
      method: "POST",
      headers: { "content-type": "application/json", "idempotency-key": `key-${name}` },
      body: JSON.stringify({ name, cron: "0 9 * * *", callback_url: "https://example.com/hook" }),
    });
    if (answer.status === 201) return;
    if (![503, 504].includes(answer.status)) throw new Error(`${name}: ${answer.status} ${await answer.text()}`);
    await new Promise((done) => setTimeout(done, 100));
  }
}

await open(first, "");
tell({ ready: true });
for (let number = 0; number < wanted; number += 1) {
  if (number === Math.floor(wanted / 3)) {
    tell({ kill: true });
    await new Promise((done) => process.stdin.once("data", done));
  }
  if (number === Math.floor((2 * wanted) / 3)) {
    // This gateway is left in the middle, and the other one goes on where it stopped.
    stream.close();
    await open(second, stream.last);
  }
  await create(number < wanted / 2 ? first : second, `job-${number}`);
}
for (let tries = 0; seen.length < wanted && tries < 600; tries += 1) {
  await new Promise((done) => setTimeout(done, 50));
}
stream.close();
tell({ seen });
process.exit(0);
