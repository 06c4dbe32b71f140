// A load on a system in JavaScript; a program of its own, run where that is installed.
//
// As load.py: its argument is what is asked, as JSON; the system is one of the files beside this
// one; the last line is what was found; when each run was due and when it began goes to a file.
// Workers are processes, like ours; they report what they have begun.
'use strict';
const { fork } = require('child_process');
const { writeFileSync } = require('fs');
const { setTimeout: sleep } = require('timers/promises');

const BATCH = 1000;
const ROOM_MS = 3000;
const DRAIN_MS = 60000;
const REPORT_MS = 20;
const REST_MS = 500;
// A worker that ended is started again, after as long as systemd waits.
const RESTART_MS = 100;
// Behind the loss of a primary: so long it may take until all is begun.
const RECOVERED_MS = 150000;

const asked = JSON.parse(process.argv[2]);
const System = require(asked.system);
const seconds = () => Date.now() / 1000;

async function work() {
  let pairs = [];
  const report = () => {
    if (pairs.length) process.send(pairs);
    pairs = [];
  };
  setInterval(report, REPORT_MS);
  await new System(asked).work((due) => { pairs.push(due, seconds()); });
}

class Workers {
  constructor() {
    this.pairs = [];
    this.processes = Array.from({ length: asked.workers }, () => null);
    this.over = false;
  }

  start(number) {
    const worker = fork(__filename, [process.argv[2]]);
    worker.on('message', (pairs) => { for (const value of pairs) this.pairs.push(value); });
    worker.on('exit', (code) => {
      if (this.over) return;
      if (!asked.failover) fail(`a worker ended with ${code}`);
      setTimeout(() => { if (!this.over) this.start(number); }, RESTART_MS);
    });
    this.processes[number] = worker;
  }

  get begun() { return this.pairs.length / 2; }

  stop() {
    this.over = true;
    for (const worker of this.processes) worker.kill('SIGKILL');
  }
}

async function insert(system, due) {
  for (let start = 0; start < due.length; start += BATCH) {
    await system.insert(due.slice(start, start + BATCH));
  }
}

// Resolves when so many runs were begun and no job is left, each completion committed.
async function drained(system, workers, runs, lastDue) {
  const until = 1000 * (lastDue + runs / asked.least_rate) + DRAIN_MS;
  while (workers.begun < runs) {
    if (Date.now() > until) fail(`${workers.begun} of ${runs} runs were begun in time`);
    await sleep(10);
  }
  while (await system.left()) {
    if (Date.now() > until) fail('all runs were begun, but not all are completed');
    await sleep(5);
  }
}

async function recovered(workers, runs, lastDue) {
  const until = 1000 * lastDue + RECOVERED_MS;
  while (workers.begun < runs && Date.now() < until) await sleep(10);
  await sleep(1000);
}

async function drive() {
  const system = new System(asked);
  await system.install();
  await system.connect();
  const workers = new Workers();
  workers.processes.forEach((_, number) => workers.start(number));
  const warmUp = Math.min(asked.warm_up, asked.runs);
  const warm = seconds();
  await insert(system, Array(warmUp).fill(warm));
  // How long the others will take: twice as long each.
  const each = (2 * (seconds() - warm)) / warmUp;
  await drained(system, workers, warmUp, seconds());
  const known = workers.pairs.length;

  const began = seconds();
  const first = began + asked.runs * Math.max(each, 1 / asked.insert_rate) + ROOM_MS / 1000;
  const at = (number) => (asked.rate ? first + number / asked.rate : first);
  await insert(system, Array.from({ length: asked.runs }, (_, number) => at(number)));
  const took = seconds() - began;
  if (seconds() > first) fail(`inserting took ${took} s, which is too long; has the machine other work?`);
  console.log(JSON.stringify({ first }));
  const last = at(asked.runs - 1);
  if (asked.failover) await recovered(workers, asked.runs + warmUp, last);
  else await drained(system, workers, asked.runs + warmUp, last);
  const done = seconds();
  // What the workers have not yet reported comes; whoever looks at them from outside sees them once
  // more.
  await sleep(REST_MS);
  workers.stop();
  writeFileSync(asked.pairs, Buffer.from(Float64Array.from(workers.pairs.slice(known)).buffer));
  console.log(JSON.stringify({ first, done, inserted_per_s: asked.runs / took }));
  process.exit(0);
}

function fail(reason) {
  console.error(reason);
  process.exit(1); // Workers notice that their channel is gone.
}

if (process.send) {
  process.on('disconnect', () => process.exit(0));
  work().catch((error) => fail(error.stack));
} else {
  drive().catch((error) => fail(error.stack));
}
