// The parts of the page that only compute: node page_parts.mjs FOLDER-OF-THE-PAGE SEED

import assert from "node:assert/strict";

const [folder, seed] = [process.argv[2], Number(process.argv[3])];
const part = (name) => import(`${folder}/lib/${name}`);
const { layout, linkState, nearest, stepCounts, stepState, LINKS_MAX, NODES_MAX } = await part("graphs.js");
const { bands, columns, instant, linePath, roundStep, stretch, ticks, under, x } = await part("axis.js");
const { groups, quoted, withEvent } = await part("dead.js");
const { Tally, WINDOW_MS } = await part("tally.js");
const { conditionOf, conditionWords, formOf, linesOf, rulesOf } = await part("kept.js");
const { newest } = await part("past.js");
const { filtersOf, together } = await part("picked.js");
const { added, NO_AUDIT } = await part("ledger.js");
const { byJob } = await part("overview.js");
const { merged, runMark } = await part("timeline.js");
const SIZES = { width: 160, height: 32, across: 60, gap: 12 };

let state = seed;
const below = (most) => {
  state = (state * 1103515245 + 12345) % 2147483648;
  return Math.floor((state / 2147483648) * most);
};

function someGraph(count, perJob) {
  const jobs = [...Array(count).keys()].map((at) => `job-${at}`);
  const links = [];
  for (let at = 1; at < count; at += 1) {
    for (let made = below(perJob + 1); made > 0; made -= 1) {
      links.push({ from: jobs[below(at)], to: jobs[at] });
    }
  }
  return { jobs, links };
}

const tests = {
  "what was picked is in as few filters as the API takes"() {
    for (const size of [1, 5, 60]) {
      const names = [...Array(200).keys()].map((at) => `${"n".repeat(size)}-${at}`);
      const filters = filtersOf("name", new Set(names));
      assert.ok(filters.every((filter) => filter.length <= 1_024 && filter.split(" OR ").length <= 50));
      assert.equal(filters.join(" OR "), names.map((name) => `name="${name}"`).join(" OR "));
      for (const [at, filter] of filters.slice(1).entries()) {
        const next = filter.split(" OR ")[0];
        assert.ok(filters[at].length + next.length + 4 > 1_024 || filters[at].split(" OR ").length === 50);
      }
    }
    assert.deepEqual(filtersOf("name", new Set()), []);
  },
  "audits of many jobs are one sum, and what is wrong comes apart from what is not known"() {
    const sum = [
      { job: "a", audit: { sound: true, expected: "5", recorded: "4", waitingTimes: "1" } },
      { job: "b", audit: { expected: "2", recorded: "1", wrong: "1", missing: ["x"], findings: [{ reason: "no outcome" }] } },
      { job: "c", audit: { expected: "3", recorded: "3", unjudged: "3", findings: [{ reason: "changed since" }] } },
      { job: "d", message: "over 10,000 scheduled times" },
    ].reduce(added, NO_AUDIT);
    const [jobs, expected, recorded, waiting] = [4, 10, 8, 1];
    const unclear = [{ job: "c", text: "changed since" }, { job: "d", text: "over 10,000 scheduled times" }];
    assert.deepEqual(sum, { jobs, expected, recorded, waiting, bad: [{ job: "b", text: "no outcome" }], unclear });
  },
  "runs that wait are one line for each job, by the one that has waited longest"() {
    const run = (job, minute) => ({ job, dueTime: `2026-11-20T10:${minute}:00Z` });
    const lines = byJob([run("a", "05"), run("b", "02"), run("a", "01"), run("a", "03")]);
    assert.deepEqual(lines.map(({ run: { job, dueTime }, more }) => [job, dueTime.slice(14, 16), more]), [["a", "01", 2], ["b", "02", 0]]);
    assert.deepEqual(byJob([]), []);
  },
  "the plans of several filters are one"() {
    const plans = [{ matched: "40", matchedIsExact: true, sample: ["a"] }, { matched: "2", failed: "1", failures: [{ name: "b" }] }];
    assert.deepEqual(together(plans), { matched: 42, matchedIsExact: false, failed: 1, sample: ["a"], failures: [{ name: "b" }] });
  },
  "every link goes forwards, and no two jobs lie on each other"() {
    for (let round = 0; round < 60; round += 1) {
      const { jobs, links } = someGraph(1 + below(40), 3);
      const drawn = layout(jobs, links, SIZES);
      assert.equal(drawn.boxes.length, jobs.length);
      const at = new Map(drawn.boxes.map((box) => [box.job, box]));
      for (const { from, to } of links) assert.ok(at.get(from).x + SIZES.width < at.get(to).x);
      for (const box of drawn.boxes) {
        assert.ok(box.y >= 0 && box.y + SIZES.height <= drawn.height);
        assert.ok(box.x + SIZES.width <= drawn.width);
        for (const other of drawn.boxes) {
          if (other === box || other.x !== box.x) continue;
          assert.ok(Math.abs(other.y - box.y) >= SIZES.height, `${box.job} on ${other.job}`);
        }
      }
    }
  },
  "a graph is always drawn the same"() {
    const { jobs, links } = someGraph(30, 3);
    assert.deepEqual(layout(jobs, links, SIZES), layout([...jobs], [...links], SIZES));
  },
  "links that need not cross do not"() {
    const jobs = ["a", "b", "c", "d", "e", "f"];
    const links = [["a", "f"], ["b", "e"], ["c", "d"]].map(([from, to]) => ({ from, to }));
    const y = new Map(layout(jobs, links, SIZES).boxes.map((box) => [box.job, box.y]));
    assert.equal(y.get("a") < y.get("b"), y.get("f") < y.get("e"));
    assert.equal(y.get("b") < y.get("c"), y.get("e") < y.get("d"));
  },
  "a chain is a straight line"() {
    const jobs = [...Array(NODES_MAX).keys()].map(String);
    const links = jobs.slice(1).map((to, at) => ({ from: jobs[at], to }));
    const { boxes } = layout(jobs, links, SIZES);
    assert.ok(boxes.every((box) => box.y === boxes[0].y));
  },
  "of a large graph the jobs nearest to one are drawn"() {
    const { jobs, links } = someGraph(3_000, 3);
    const some = nearest(jobs, links, "job-1500");
    assert.equal(some.jobs.length, NODES_MAX);
    assert.ok(some.jobs.includes("job-1500"));
    assert.ok(some.links.length <= LINKS_MAX);
    const drawn = layout(some.jobs, some.links, SIZES);
    assert.equal(drawn.boxes.length, NODES_MAX);
  },
  "an empty graph is nothing"() {
    assert.deepEqual(layout([], [], SIZES), { boxes: [], paths: [], width: 0, height: 0 });
  },
  "an instant and its place are each other's opposite"() {
    const range = stretch("1h", 1_800_000_000_000, 0);
    assert.equal(range.length, 3_600_000);
    assert.equal(x(range.from, range, 900), 0);
    assert.equal(instant(x(1_800_000_000_000, range, 900), range, 900), 1_800_000_000_000);
    assert.equal(x(1_800_000_000_000, range, 900), 600);
  },
  "ticks are few, even and round in the zone"() {
    for (const span of ["15m", "1h", "6h", "24h", "7d", "30d"]) {
      for (const width of [200, 380, 1_200]) {
        const range = stretch(span, 1_800_000_123_456, 0);
        const { step, at } = ticks(range, width, 5.5 * 3_600_000);
        assert.ok(at.length <= width / 40 + 1, `${span} ${width}: ${at.length}`);
        assert.ok(at.every((one) => (one + 5.5 * 3_600_000) % step === 0));
        assert.ok(at.every((one) => one >= range.from && one <= range.to));
      }
    }
  },
  "of many marks on one column the gravest is seen, with their number"() {
    const range = { from: 0, to: 1_000, length: 1_000 };
    const marks = [{ at: 10, state: "ok" }, { at: 12, state: "bad" }, { at: 900, state: "ok" }];
    const found = columns(marks, range, 100, 4, (word) => (word === "bad" ? 1 : 0));
    assert.deepEqual(found.map(({ column, state, count }) => [column, state, count]),
      [[0, "bad", 2], [22, "ok", 1]]);
  },
  "columns beside each other are one stretch, and those apart are not"() {
    const at = (...places) => places.map((column) => ({ column, count: 1, state: "P", mark: column }));
    assert.deepEqual(bands(at(1, 3, 4, 6)).map(({ column, wide, count }) => [column, wide, count]), [[1, 6, 4]]);
    assert.deepEqual(bands(at(1, 11, 21)).map(({ column, wide }) => [column, wide]), [[1, 1], [11, 1], [21, 1]]);
    assert.deepEqual(bands([]), []);
  },
  "a line breaks where a value is missing, and so does what lies under it"() {
    const path = linePath([1, 2, null, 3], (at) => at * 10, (value) => -value);
    assert.equal(path, "M0.0 -1.0L10.0 -2.0M30.0 -3.0h0");
    assert.equal(under(path, 0), "M0.0 0L0.0 -1.0L10.0 -2.0L10.0 0ZM30.0 0L30.0 -3.0h0L30.0 0Z");
    assert.equal(under("", 0), "");
  },
  "steps of an axis are round, and there are few"() {
    for (const most of [0.003, 0.9, 1, 7, 12, 49, 50, 51, 99, 12_345]) {
      const step = roundStep(most);
      assert.ok(step * 2 >= most && step <= most * 1.25, `${most}: ${step}`);
      assert.match(String(Number(step.toPrecision(3)) / 10 ** Math.floor(Math.log10(step))), /^(1|2|5)/);
    }
  },
  "dead letters are grouped by job and kind, the newest group first"() {
    const run = (job, kind, minute) => ({
      job, queue: "q", error: { kind }, endTime: `2026-01-01T00:0${minute}:00Z`,
    });
    const found = groups([run("a", "X", 5), run("b", "X", 4), run("a", "X", 1), run("a", "Y", 7)]);
    assert.deepEqual(found.map(({ job, kind, count }) => [job, kind, count]),
      [["a", "Y", 1], ["a", "X", 2], ["b", "X", 1]]);
    assert.equal(found[1].oldest, "2026-01-01T00:01:00Z");
    assert.equal(found[1].newest, "2026-01-01T00:05:00Z");
  },
  "an event puts a dead letter on top, or takes it away"() {
    const run = (id) => ({ id, job: "a", error: { kind: "X" }, endTime: "2026-01-01T00:00:00Z" });
    const before = { runs: [run("1")], total: 1 };
    const failed = withEvent(before, { kind: "EVENT_KIND_RUN_FAILED", run: run("2") });
    assert.deepEqual([failed.runs.map(({ id }) => id), failed.total], [["2", "1"], 2]);
    const twice = withEvent(failed, { kind: "EVENT_KIND_RUN_FAILED", run: run("2") });
    assert.deepEqual([twice.runs.length, twice.total], [2, 2]);
    const less = withEvent(twice, { kind: "EVENT_KIND_RUN_REQUEUED", run: run("1") });
    assert.deepEqual([less.runs.map(({ id }) => id), less.total], [["2"], 1]);
    assert.equal(withEvent(less, { kind: "EVENT_KIND_RUN_LEASED", run: run("9") }), less);
  },
  "what a page saw in a minute is counted, and it says of how long"() {
    const tally = new Tally(1_000_000);
    tally.add("a", 1_000_000);
    tally.add("a", 1_030_000);
    tally.add("b", 1_030_000);
    assert.deepEqual(tally.of("a", 1_040_000), { count: 2, over: 40_000 });
    assert.deepEqual(tally.of("a", 1_085_000), { count: 1, over: WINDOW_MS });
    tally.begin(1_090_000);
    assert.deepEqual(tally.of("b", 1_091_000), { count: 0, over: 1_000 });
  },
  "days of a calendar are lines, there and back"() {
    const lines = "2026-12-24\n12-25\nsat\n2026-12-28..2027-01-01";
    const { rules, wrong } = rulesOf(`${lines}\n\n`);
    assert.equal(wrong, "");
    assert.deepEqual(rules, [{ date: "2026-12-24" }, { yearly: "12-25" }, { weekday: 6 },
      { range: { first: "2026-12-28", last: "2027-01-01" } }]);
    assert.equal(linesOf(rules), lines);
    assert.match(rulesOf("next week").wrong, /"next week" is no day/);
  },
  "the condition of an alert is a form, there and back"() {
    for (const condition of [{ deadLettersAbove: "0" }, { latenessAbove: "300s" }, { noMargin: true },
      { workersBelow: { queue: "mail", minimum: 2 } }, { leaderChangesAbove: "5" }]) {
      assert.deepEqual(conditionOf(formOf(condition)), condition);
    }
    assert.equal(conditionOf({ kind: "latenessAbove", value: "soon" }), undefined);
    assert.equal(conditionOf({ kind: "workersBelow", value: "2", queue: "" }), undefined);
    assert.equal(conditionWords({ latenessAbove: "300s" }), "a run is ready for longer than 5 min");
  },
  "a step of a flow stands as its run does, and a link as it asks"() {
    const step = { state: "STATE_FIRED", run: "r", runState: "RUN_STATE_FAILED" };
    assert.equal(stepState(step), "FAILED");
    assert.equal(stepState({ state: "STATE_WAITING" }), "WAITING");
    assert.equal(stepState(undefined), "NOT_REACHED");
    assert.equal(linkState("CONDITION_FAILURE", "FAILED"), "met");
    assert.equal(linkState("CONDITION_SUCCESS", "FAILED"), "unmet");
    assert.equal(linkState("CONDITION_ANY_END", "RUNNING"), "open");
    assert.deepEqual(stepCounts([step, { state: "STATE_WAITING" }, step]), [["FAILED", 2], ["WAITING", 1]]);
  },
  "a run is one mark however often it is heard of"() {
    const run = { id: "r", state: "RUN_STATE_RUNNING", startTime: "2026-01-01T00:00:00Z" };
    const going = merged([], runMark(run));
    assert.equal(going[0].end, null);
    const ended = merged(going, runMark({ ...run, endTime: "2026-01-01T00:00:05Z", state: "RUN_STATE_FAILED" }));
    assert.deepEqual(ended.map(({ state, at, end }) => [state, end - at]), [["FAILED", 5_000]]);
  },
  async "what happened last is looked for near by, and further only where that was too little"() {
    // Events by change, of which the newest is 100.
    const looked = async (perChange, { oldest = 0, enough = 6 } = {}) => {
      const asked = [];
      const ask = async (change, pageSize) => {
        asked.push(change);
        const all = [...Array(100 - change).keys()].flatMap((at) => Array(perChange).fill(change + 1 + at));
        return { events: all.slice(0, pageSize), end: all.length <= pageSize };
      };
      const found = await newest({ revision: 100, oldest }, [[2, 8], [20, 30], [200, 60]], (events) => events.length >= enough, ask);
      return { asked, found: found.length, first: found[0] };
    };
    // Enough at once; enough at the second look; what is there, however little.
    assert.deepEqual(await looked(3), { asked: [98], found: 6, first: 99 });
    assert.deepEqual(await looked(1), { asked: [98, 80], found: 20, first: 81 });
    assert.deepEqual(await looked(0), { asked: [98, 80, 0], found: 0, first: undefined });
    // The second look ends before now, so the first one says what is newest.
    assert.deepEqual(await looked(2), { asked: [98, 80], found: 4, first: 99 });
    // So much in two changes that nobody can say what is newest: one look, and no larger one.
    assert.deepEqual(await looked(1_000), { asked: [98], found: 8, first: 99 });
    // Nothing older is kept, so nobody looks again for the same.
    assert.deepEqual(await looked(1, { oldest: 97 }), { asked: [98, 97], found: 3, first: 98 });
    assert.deepEqual(await looked(1, { oldest: 99 }), { asked: [99], found: 1, first: 100 });
    const gaps = await looked(1, { enough: 100 });
    assert.deepEqual(gaps, { asked: [98, 80, 0], found: 20, first: 81 });
  },
  "a value is quoted as filters read it"() {
    assert.equal(quoted('a "b" \\c'), '"a \\"b\\" \\\\c"');
  },
};

let failed = 0;
for (const [name, test] of Object.entries(tests)) {
  try {
    await test();
  } catch (error) {
    failed += 1;
    console.error(`${name} (seed ${seed}): ${error.stack}`);
  }
}
process.exit(failed ? 1 : 0);
