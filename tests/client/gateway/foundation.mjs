// What the page's own modules compute: node foundation.mjs FOLDER-OF-THE-PAGE SEED
import assert from "node:assert/strict";
import { pathToFileURL } from "node:url";

const [folder, seed] = [process.argv[2], Number(process.argv[3])];
const part = (name) => import(pathToFileURL(`${folder}/${name}`));
const { link, match, parsed } = await part("lib/route.js");
const { addressOf, answers, leaderless, post, queryOf, read } = await part("lib/api.js");
const { can, session } = await part("lib/session.js");
const { BATCH_MAX, Blocks, Feed, union } = await part("lib/feed.js");
const { YamlError, dump, parse } = await part("lib/yaml.js");
const { changes, lines } = await part("lib/specs.js");
const { bars, clockChange, total, BARS_MAX } = await part("lib/ledger.js");
const { stretches } = await part("lib/runs.js");
const { clockChanges, clockTime, exact, length, lengthTyped, typedLength } = await part("lib/time.js");
const { fromText, readable, sendable, toJson, toYaml } = await part("lib/specs.js");
const { put, typedPairs } = await part("lib/specs.js");
const { columnsOf, joined, latest, spanOf, SPANS, thinned } = await part("lib/overview.js");
const { withRun } = await part("lib/facts.js");
const { countOf } = await part("lib/list.js");
const { completions, filterOf } = await part("components/search.js");
const { fromBase64, median, shortened, toBase64, visible } = await part("lib/format.js");
const { html, readHoles } = await part("lib/dom.js");
const { paces, timed, SLOW } = await part("lib/pace.js");

let state = seed;
const below = (most) => {
  state = (state * 1103515245 + 12345) % 2147483648;
  return Math.floor((state / 2147483648) * most);
};
const pick = (list) => list[below(list.length)];
const TEXTS = ["", "a", "*/5 * * * *", "it's: x", "true", "0", "1.5", "- b", "# c", "a # b", "two\nlines", "two\n\n  three", " x ", '"', "'", "a: b", "[x", "{", "null", "ä€😀", "n", "|", "1e3", "~", "a\\b", "x\ty", "-", "- - 1", "@daily"];

function anything(depth) {
  const kind = below(depth > 0 ? 6 : 4);
  if (kind < 2) return pick(TEXTS);
  if (kind === 2) return below(1_000) - 500;
  if (kind === 3) return pick([true, false, null, 0.25]);
  const count = below(4);
  if (kind === 4) return Array.from({ length: count }, () => anything(depth - 1));
  return Object.fromEntries(Array.from({ length: count }, (_, at) => [pick(TEXTS.filter((one) => !one.includes("\n"))) || `k${at}`, anything(depth - 1)]));
}

function feed(answers) {
  const said = [];
  const asked = [];
  const fetcher = (address, options) => {
    asked.push({ address, last: options.headers?.["last-event-id"] });
    const answer = address.includes("/v1/events") ? answers.shift() : null;
    if (answer === undefined || answer === null) return new Promise((_, fail) => options.signal?.addEventListener("abort", () => fail(new Error("aborted"))));
    return Promise.resolve(answer);
  };
  return { made: new Feed("", (message) => said.push(message), { fetch: fetcher }), said, asked };
}
const stream = (text) => new Response(text, { status: 200 });
async function until(holds) {
  for (let tries = 0; tries < 500 && !holds(); tries += 1) await new Promise((done) => setTimeout(done, 10));
  assert.ok(holds(), "it did not come");
}

// Answers of the gateway, in order; a function is called with the signal of the call.
function gateway(...given) {
  const asked = [];
  globalThis.fetch = async (address, options) => {
    asked.push({ address, ...options });
    const next = given.shift();
    return typeof next === "function" ? next(options.signal) : next;
  };
  return asked;
}
const json = (body, status = 200, headers = {}) => new Response(JSON.stringify(body), { status, headers });
const refusing = (reason, status) => json({ error: { code: status, message: reason, details: [{ reason }, { fieldViolations: [{ field: "spec.queue", description: "no" }] }] } }, status);
const hanging = (signal) => new Promise((_, fail) => signal.addEventListener("abort", () => fail(signal.reason)));

const tests = {
  "an address is taken apart as it was put together"() {
    assert.equal(link(["/jobs", "a b/c"], { q: "x=1 AND y", n: "" }), "/jobs/a%20b%2Fc?q=x%3D1+AND+y");
    assert.deepEqual(parsed("http://h/jobs/a%20b?q=x%3D1+AND+y&ns=z"), { path: "/jobs/a%20b", params: { q: "x=1 AND y", ns: "z" } });
    assert.deepEqual(match("/jobs/:job", "/jobs/a%20b"), { job: "a b" });
    assert.equal(match("/jobs/:job", "/jobs/%E0%A4%A"), null);
    assert.equal(match("/jobs/:job", "/jobs/a/edit"), null);
    assert.equal(parsed("http://h/jobs/").path, "/jobs");
    assert.equal(parsed("http://h/").path, "/");
  },
  "a query is nested by points, and what is empty is left out"() {
    assert.deepEqual(queryOf({ a: 1, b: "", c: undefined, d: { e: "f", g: { h: true } }, i: ["x", "y"], j: false }), [["a", "1"], ["d.e", "f"], ["d.g.h", "true"], ["i", "x"], ["i", "y"]]);
    assert.equal(addressOf("/v1/jobs", {}), "/v1/jobs");
  },
  async "a read that finds no leader is asked of what a node has"() {
    const asked = gateway(refusing("NO_QUORUM", 503), json({ jobs: [] }, 200, { "raftsched-age-ms": "1200" }));
    const found = await read("/v1/jobs", { namespace: "a" });
    assert.equal(found.ageMs, 1_200);
    assert.equal(asked[1].address, "/v1/jobs?namespace=a&read.consistency=CONSISTENCY_STALE");
    gateway(json({ jobs: [] }));
    assert.equal((await read("/v1/jobs")).ageMs, null);
  },
  async "a read on its way is given up when there is no leader any more"() {
    const asked = gateway(hanging, json({}, 200, { "raftsched-age-ms": "5" }), json({}));
    const found = read("/v1/jobs");
    leaderless.set({ is: true });
    assert.equal((await found).ageMs, 5);
    await read("/v1/jobs");
    leaderless.set({ is: false });
    assert.ok(asked.slice(1).every((one) => one.address.includes("STALE")));
  },
  async "what somebody has left is not asked again"() {
    const asked = gateway(hanging);
    const left = new AbortController();
    const found = read("/v1/jobs", {}, { signal: left.signal });
    left.abort();
    await assert.rejects(found);
    assert.equal(asked.length, 1);
  },
  async "a refusal keeps its reason and its faults, and other reasons are not asked again"() {
    const asked = gateway(refusing("FIELD_INVALID", 400));
    await assert.rejects(read("/v1/jobs"), (error) => error.reason === "FIELD_INVALID" && error.faults[0].field === "spec.queue");
    assert.equal(asked.length, 1);
    gateway(refusing("UNAUTHENTICATED", 401));
    await assert.rejects(read("/v1/jobs"));
    assert.ok(answers.get().signedOut);
  },
  async "a write is sent once, with a request id of its own"() {
    const asked = gateway(json({}), json({}), refusing("NO_QUORUM", 503));
    await post("/v1/jobs/a:pause", { reason: "x" }, { etag: "e1" });
    await post("/v1/jobs/a:pause");
    await assert.rejects(post("/v1/jobs/a:pause"));
    assert.equal(asked.length, 3);
    assert.equal(asked[0].headers["if-match"], '"e1"');
    assert.match(asked[0].headers["idempotency-key"], /^[0-9a-f]{32}$/);
    assert.notEqual(asked[0].headers["idempotency-key"], asked[1].headers["idempotency-key"]);
  },
  "what the caller may not do is not offered"() {
    session.set({ caller: null });
    assert.ok(!can("JobService/PauseJob"));
    session.set({ caller: { grants: [{ namespace: "a", calls: ["JobService/PauseJob"] }] } });
    assert.ok(can("JobService/PauseJob", "a") && !can("JobService/PauseJob", "b") && !can("JobService/DeleteJob", "a"));
    session.set({ caller: { grants: [{ calls: ["JobService/PauseJob"] }] } });
    assert.ok(can("JobService/PauseJob", "b"));
  },
  "blocks of a stream come whole however it is cut"() {
    const text = "retry: 900\n\nid: 1.0\ndata: {\"a\":1}\n\n: nothing\n\nid: 2.0\n\nevent: error\ndata: {}\n\n";
    for (let round = 0; round < 50; round += 1) {
      const blocks = new Blocks();
      const found = [];
      for (let at = 0; at < text.length; ) {
        const next = at + 1 + below(9);
        found.push(...blocks.take(text.slice(at, next)));
        at = next;
      }
      assert.deepEqual(found.filter((one) => one.id || one.data), [{ id: "1.0", event: "", data: '{"a":1}' }, { id: "2.0", event: "", data: "" }, { id: "", event: "error", data: "{}" }]);
    }
  },
  "several pages have one stream of what all of them want"() {
    assert.equal(union([]), null);
    assert.deepEqual(union([{ namespace: "a", filter: "job=x" }, { namespace: "a", filter: "job=x" }]), { namespace: "a", filter: "job=x" });
    assert.deepEqual(union([{ namespace: "a", filter: "job=x" }, { namespace: "a", filter: "" }]), { namespace: "a", filter: "" });
    assert.deepEqual(union([{ namespace: "a", filter: "job=x" }, { namespace: "b", filter: "job=x" }]), { namespace: "", filter: "" });
  },
  async "a stream that ends goes on behind what was seen last"() {
    const { made, said, asked } = feed([stream('id: 5.0\ndata: {"job":"a"}\n\n'), stream('id: 6.0\ndata: {"job":"b"}\n\n')]);
    made.follow({ namespace: "default", filter: "" });
    await until(() => asked.filter((one) => one.address.includes("events")).length === 3);
    made.follow(null);
    const streams = asked.filter((one) => one.address.includes("events"));
    assert.deepEqual(streams.map((one) => one.last), [undefined, "5.0", "6.0"]);
    await until(() => said.flatMap((one) => one.events ?? []).length === 2);
    assert.equal(made.status.is, "paused");
  },
  async "a place that is gone begins anew and says so"() {
    const gone = new Response(JSON.stringify({ error: { message: "gone", details: [{ reason: "REVISION_GONE" }] } }), { status: 410 });
    const { made, said, asked } = feed([gone]);
    made.last = "3.0";
    made.follow({ namespace: "default", filter: "" });
    await until(() => asked.filter((one) => one.address.includes("events")).length === 2);
    made.follow(null);
    assert.ok(said.some((one) => one.reset));
    assert.equal(asked.filter((one) => one.address.includes("events"))[1].last, undefined);
  },
  async "too many events at once are said as many"() {
    const { made, said } = feed([stream(Array.from({ length: BATCH_MAX + 5 }, (_, at) => `id: ${at}.0\ndata: {}\n\n`).join(""))]);
    made.follow({ namespace: "default", filter: "" });
    await until(() => said.some((one) => one.many));
    made.follow(null);
    assert.ok(!said.some((one) => one.events?.length));
  },
  "what was written as YAML is read as it was"() {
    for (let round = 0; round < 3_000; round += 1) {
      const value = { k: anything(4) };
      const text = dump(value);
      try {
        assert.deepEqual(parse(text), value);
      } catch (error) {
        throw new Error(`${JSON.stringify(value)}\n${text}\n${error.message}`);
      }
    }
  },
  "YAML that others write is read, and what is none is refused with its line"() {
    const text = "# jobs\nname: report # mine\nspec:\n  schedules:\n  - cron: {expression: \"0 9 * * *\"}\n  - interval:\n      every: 5s\n  action: { handler: hello, list: [a, 'b c', {d: 1}] }\n  text: |\n    a\n      b\n  fold: >-\n    x\n    y\n";
    assert.deepEqual(parse(text), { name: "report", spec: { schedules: [{ cron: { expression: "0 9 * * *" } }, { interval: { every: "5s" } }], action: { handler: "hello", list: ["a", "b c", { d: 1 }] }, text: "a\n  b\n", fold: "x y" } });
    for (const [wrong, why] of [["a: b\n c: d", /line 2/], ['a: "x', /line 1/], ["- a\nb: c", /line 2/], ["a: {b", /line 1/], ["a: b\na: c", /line 2.*already/], ["a:\n\tb: c", /tab/], ["a: &x 1", /line 1/]]) {
      assert.throws(() => parse(wrong), (error) => error instanceof YamlError && why.test(error.message), wrong);
    }
    assert.throws(() => parse(`${"a:\n ".repeat(1)}${Array.from({ length: 60 }, (_, at) => `${" ".repeat(at + 2)}k:`).join("\n")}`), YamlError);
  },
  "a job as text is the same job"() {
    const job = { name: "a", uid: "7", spec: { action: { handler: "h" }, payload: { data: toBase64('{"x":[1,"ä"]}'), contentType: "application/json" } } };
    for (const write of [toYaml, toJson]) assert.deepEqual(fromText(write(job)), { name: "a", spec: job.spec });
    const odd = { name: "a", spec: { payload: { data: toBase64('{ "x": 1 }'), contentType: "application/json" } } };
    assert.deepEqual(sendable(readable(odd)), odd);
    const bytes = { name: "a", spec: { payload: { data: "/w==" } } };
    assert.deepEqual(readable(bytes), bytes);
  },
  "differences name their path, and lines stay in order"() {
    assert.deepEqual(changes({ a: 1, b: { c: 2 } }, { a: 1, b: { c: 3, d: 4 } }), [{ path: "b.c", before: 2, after: 3 }, { path: "b.d", before: undefined, after: 4 }]);
    for (let round = 0; round < 200; round += 1) {
      const some = () => Array.from({ length: 1 + below(8) }, () => pick(["a", "b", "c"])).join("\n");
      const [one, other] = [some(), some()];
      const all = lines(one, other);
      assert.equal(all.filter(([sign]) => sign !== "+").map(([, line]) => line).join("\n"), one);
      assert.equal(all.filter(([sign]) => sign !== "-").map(([, line]) => line).join("\n"), other);
    }
  },
  "every scheduled time is in a bar of the ledger"() {
    for (let round = 0; round < 100; round += 1) {
      const count = 1 + below(1_000);
      const entries = Array.from({ length: count }, (_, at) => ({ scheduledTime: new Date((count - at) * 60_000).toISOString(), outcome: pick(["OUTCOME_RAN", "OUTCOME_MISSED", "OUTCOME_LATE"]), ...(below(5) ? {} : { count: String(2 + below(50)) }) }));
      const made = bars(entries);
      assert.ok(made.length <= BARS_MAX);
      assert.equal(made.reduce((sum, bar) => sum + bar.count, 0), total(entries));
      assert.equal(made.some((bar) => bar.outcome === "OUTCOME_MISSED"), entries.some((one) => one.outcome === "OUTCOME_MISSED"));
      for (const [at, bar] of made.entries()) assert.ok(!at || made[at - 1].from < bar.from);
    }
    assert.equal(clockChange({ localTime: "2027-03-27T02:30:00+01:00" }, { localTime: "2027-03-28T03:00:00+02:00" }), "+01:00 → +02:00");
    assert.equal(clockChange(undefined, { localTime: "2027-03-28T03:00:00+02:00" }), "");
  },
  "the stretches of a run lie one behind the other from due to end"() {
    const at = (second) => new Date(second * 1_000).toISOString();
    const run = { state: "RUN_STATE_SUCCEEDED", dueTime: at(0), readyTime: at(1), startTime: at(3), endTime: at(30), attempts: [{ number: 1, startTime: at(3), endTime: at(10), end: "END_FAILED" }, { number: 2, startTime: at(20), endTime: at(30), end: "END_SUCCEEDED" }] };
    assert.deepEqual(stretches(run).map((one) => [one.kind, one.from / 1_000, one.to / 1_000]), [["held", 0, 1], ["wait", 1, 3], ["attempt", 3, 10], ["retry", 10, 20], ["attempt", 20, 30]]);
    const requeued = { ...run, readyTime: at(15), attempts: [{ ...run.attempts[0] }, { ...run.attempts[1] }] };
    assert.deepEqual(stretches(requeued).map((one) => [one.kind, one.from / 1_000, one.to / 1_000]), [["wait", 0, 3], ["attempt", 3, 10], ["dead", 10, 15], ["retry", 15, 20], ["attempt", 20, 30]]);
    assert.deepEqual(stretches({ state: "RUN_STATE_PENDING", dueTime: at(0) }, 5_000).map((one) => [one.kind, one.from, one.to]), [["wait", 0, 5_000]]);
    assert.deepEqual(stretches({ state: "RUN_STATE_PENDING", dueTime: at(9) }, 5_000), []);
  },
  "lengths are read as they are written"() {
    for (let round = 0; round < 500; round += 1) {
      const size = below(1_000_000_000);
      assert.equal(typedLength(lengthTyped(size)), size);
    }
    assert.equal(typedLength("1h30m"), 5_400_000);
    assert.equal(typedLength("90"), 90_000);
    assert.equal(typedLength("soon"), undefined);
    assert.equal(length(65_000), "1 min");
    assert.equal(length(65_000, true), "1 min 5 s");
    assert.equal(exact(Date.parse("2026-11-20T08:00:00.120Z"), "Europe/Berlin"), "Fri 2026-11-20 09:00:00.120 +01:00");
  },
  "plain words look for names, filters stay as they are"() {
    assert.equal(filterOf("night report"), "name:night AND name:report");
    assert.equal(filterOf(" state=PAUSED "), "state=PAUSED");
    const fields = { state: { values: ["ACTIVE", "PAUSED"] }, name: { sign: ":" } };
    assert.deepEqual(completions("st", 2, fields), [{ put: "state=", help: undefined, from: 0 }]);
    assert.deepEqual(completions("name:x AND state=p", 18, fields), [{ put: "state=PAUSED ", help: "", from: 11 }]);
  },
  "parts of a draft that hold nothing are left out"() {
    assert.deepEqual(put({ a: { b: 1 } }, "a.b", undefined), {});
    assert.deepEqual(put({}, "retry.maxAttempts", 3), { retry: { maxAttempts: 3 } });
    assert.deepEqual(typedPairs("a=b, c=d=e"), { a: "b", c: "d=e" });
    assert.equal(typedPairs("a"), undefined);
  },
  "what a page of a list says itself is not counted once more"() {
    const page = (rows, nextPageToken = "") => ({ rows: Array(rows).fill({}), nextPageToken });
    assert.deepEqual(countOf(null, ""), {});
    assert.deepEqual(countOf(page(3), ""), { count: 3, exact: true });
    assert.deepEqual(countOf(page(0), ""), { count: 0, exact: true });
    assert.deepEqual(countOf(page(0, "further"), ""), {});
    // A full page, and one that is not the first.
    for (const [one, at] of [[page(50, "more"), ""], [page(3), "behind"], [page(0), "behind"]]) assert.equal(countOf(one, at), null);
  },
  "where we are is not asked with every instant that is shown"() {
    const { DateTimeFormat } = Intl;
    let asked = 0;
    Intl.DateTimeFormat = function DateTimeFormatCounted(...given) {
      asked += 1;
      return new DateTimeFormat(...given);
    };
    try {
      const begin = Date.parse("2026-11-20T08:00:00Z");
      for (let minute = 0; minute < 60; minute += 1) assert.match(clockTime(begin + minute * 60_000), /:00/);
      assert.ok(asked <= 4, `${asked} for 60 instants`);
    } finally {
      Intl.DateTimeFormat = DateTimeFormat;
    }
  },
  "figures join at the stretch that grows, and a gap is seen"() {
    const old = [{ time: 1_000 }, { time: 2_000, fired: 1 }];
    assert.deepEqual(joined(old, [{ time: 2_000, fired: 5 }, { time: 3_000 }], 10_000), [{ time: 1_000 }, { time: 2_000, fired: 5 }, { time: 3_000 }]);
    assert.equal(joined(old, [{ time: 3_000 }], 2_000).length, 2);
    assert.deepEqual(columnsOf([{ time: 1_000, fired: 1 }, { time: 9_000, fired: 2 }], ["fired"], 1_000), [[1, 2, 9], [1, null, 2]]);
  },
  "what is shown as now does not flicker"() {
    const one = (time, fired, p50, counted = 1_000) => ({ time, fired, started: fired, ended: fired, failed: 0, p50, p99: p50, counted });
    const figures = [...Array.from({ length: 20 }, (_, at) => one(at * 1_000, at % 2, at === 15 ? 7 : null)), one(20_000, 99, 50, 300)];
    const { fired, p50, time } = latest(figures, 1_000);
    assert.deepEqual([fired, p50, time], [0.5, 7, 19_000]);
    assert.equal(latest([], 1_000), undefined);
  },
  "few stretches say the same as many"() {
    const many = Array.from({ length: 900 }, (_, at) => ({ time: at * 1_000, fired: at % 2, p99: at === 450 ? 9 : null, p50: null }));
    const few = thinned(many, 1_000, 8_000, 120);
    assert.ok(few.figures.length <= 121 && few.size === 8_000);
    assert.ok(few.figures.every((one) => one.fired >= 0.25 && one.fired <= 0.75));
    assert.equal(few.figures.filter((one) => one.p99 === 9).length, 1);
    assert.ok(few.figures.every((one) => one.p50 === null));
    assert.equal(thinned(many.slice(0, 100), 1_000, 8_000, 120).size, 1_000);
    const [later] = [thinned([...many, { time: 900_000, fired: 1, p99: null, p50: null }], 1_000, 8_000, 121)];
    assert.deepEqual(later.figures[3], few.figures[3]);
  },
  async "what is long past comes in few coarse stretches, and the plot has no gap"() {
    const ring = (step, begins) => (since = 0) => Array.from({ length: 900_000 / step }, (_, at) => ({ time: begins + at * step, counted: step, fired: 1 })).filter((one) => one.time >= since);
    const asked = [];
    const rings = { STEP_SECOND: ring(1_000, 5_000_000), STEP_TEN_SECONDS: ring(10_000, 5_000_000), STEP_MINUTE: () => [] };
    const ask = async (step, since) => (asked.push([step, since]), rings[step](since));
    const span = SPANS[""];
    // The node's clock is at 5,900 s, and ours is right, a minute late, a minute early, hours away.
    for (const [away, most] of [[0, 220], [-60_000, 280], [60_000, 160], [-9_000_000, 1_000], [9_000_000, 1_000]]) {
      const found = joined([], await spanOf(span, 5_900_123 + away, ask), span.lasts);
      assert.ok(found.length >= 100 && found.length <= most, `${found.length} for ${away}`);
      assert.equal(found.at(-1).time, 5_899_000);
      assert.ok(found.every((one, at) => !at || one.time === found[at - 1].time + found[at - 1].counted));
      const { figures, size } = thinned(found, span.size, span.drawn, 120);
      assert.equal(size, span.drawn);
      const [times, fired] = columnsOf(figures, ["fired"], size);
      assert.ok(times.length >= 78 && fired.every((one) => one === 1), `${times.length} points for ${away}`);
    }
    // Those who open a page at the same moment ask for the same.
    asked.length = 0;
    for (const at of [5_900_123, 5_907_999]) await spanOf(span, at, ask);
    assert.deepEqual(asked.slice(0, 2), asked.slice(2));
    // A cluster that has just begun is shown by seconds.
    const young = { STEP_SECOND: ring(1_000, 5_850_000), STEP_TEN_SECONDS: ring(10_000, 5_850_000) };
    const begun = await spanOf(span, 5_900_123, async (step, since) => young[step](since).filter((one) => one.time < 5_900_000));
    assert.deepEqual([begun.length, thinned(begun, span.size, span.drawn, 120).size], [50, 1_000]);
  },
  "the last outcomes stay in order, each once"() {
    const run = (second, name) => ({ id: name, state: "RUN_STATE_SUCCEEDED", scheduledTime: new Date(second * 1_000).toISOString() });
    let runs = [];
    for (let second = 0; second < 40; second += 1) runs = withRun(runs, run(second, `r${second}`));
    assert.equal(runs.length, 20);
    assert.equal(withRun(runs, run(39, "r39")).length, 20);
    assert.deepEqual(runs.map((one) => one.at), [...runs.map((one) => one.at)].sort((one, other) => one - other));
  },
  "signs that are not seen are shown as what they are"() {
    const evil = "a\u202eb\u0007c\u200bd\ue000e\u{e0041}";
    const plainly = "a\\u202eb\\u0007c\\u200bd\ue000e\\ue0041";
    assert.equal(visible(evil), plainly);
    for (const text of [...TEXTS, "two\r\n\tlines", "👩‍👧 שלום عربي"]) assert.equal(visible(text), text);
    const list = [evil, html`<i>${evil}</i>`];
    const made = html`<p title=${evil} href=${evil} data-a="x > y" aria-label="a ${evil} b"><b class=${evil}>1 > ${evil}</b>${list}</p>`;
    assert.deepEqual([made.props.title, made.props.href, made.props["aria-label"]], [plainly, evil, `a ${plainly} b`]);
    const [bold, listed] = made.props.children;
    assert.deepEqual([bold.props.class, bold.props.children.at(-1)], [evil, plainly]);
    assert.deepEqual([listed[0], listed[1].props.children], [plainly, plainly]);
    assert.equal(readHoles(["<a href=", ">", "</a>"]).join(), "false,true");
  },
  "the clocks of a zone are changed when they are"() {
    const from = Date.parse("2026-11-20T09:00:00Z");
    const found = (zone) => clockChanges(zone, from).map((at) => new Date(at).toISOString());
    assert.deepEqual(found("Europe/Berlin"), ["2027-03-28T01:00:00.000Z", "2027-10-31T01:00:00.000Z"]);
    assert.deepEqual(found("America/New_York"), ["2027-03-14T07:00:00.000Z", "2027-11-07T06:00:00.000Z"]);
    assert.deepEqual(found("UTC"), []);
  },
  "a worker is slow against others with the same jobs, and not since its jobs are long"() {
    const run = (worker, job, took) => ({ worker, job, took });
    const runs = [];
    for (let at = 0; at < 9; at += 1) {
      for (const worker of ["a", "b", "c"]) runs.push(run(worker, "short", worker === "c" ? 90 : 30 + below(3)));
      runs.push(run("b", "alone", 60_000));
    }
    const found = paces(runs);
    assert.ok(found.get("c").factor > 2.5 && found.get("c").factor >= SLOW);
    assert.ok(found.get("a").factor < SLOW && found.get("b").factor < SLOW);
    assert.equal(found.get("b").count, 18);
    assert.equal(paces([run("a", "x", 5)]).get("a").factor, undefined);
    const at = (second) => new Date(second * 1_000).toISOString();
    const event = { run: { id: "r", job: "j", startTime: at(1), endTime: at(9), attempts: [{ worker: "w", startTime: at(7), endTime: at(9) }] } };
    assert.deepEqual(timed(event), { id: "r", worker: "w", job: "j", took: 2_000 });
  },
  "texts pass through base64, and ids keep both ends"() {
    for (const text of TEXTS) assert.equal(fromBase64(toBase64(text)).text, text);
    assert.equal(fromBase64("/w==").text, null);
    assert.equal(shortened("report.17.1763456400000.3", 12), "repor…000.3");
    assert.equal(median([3, 1, 2]), 2);
  },
};

let failed = 0;
for (const [name, test] of Object.entries(tests)) {
  try {
    await test();
  } catch (error) {
    failed += 1;
    console.error(`seed ${seed}: ${name}\n${error.stack}\n`);
  }
}
console.log(`${Object.keys(tests).length - failed} of ${Object.keys(tests).length}`);
process.exit(failed ? 1 : 0);
