// The load on graphile-worker; a program of its own, run where graphile-worker is installed.
//
// Its argument is what is asked, as JSON; its last line is what it found. Workers are processes,
// like ours; they say how many runs they have begun.
'use strict';
const { fork } = require('child_process');
const { setTimeout: sleep } = require('timers/promises');
const { Logger, makeWorkerUtils, run } = require('graphile-worker');

const BATCH = 1000;
const WARM_UP = 2000;
const ROOM_MS = 3000;
const PATIENCE_MS = 60000;
const TELL_MS = 20;

const asked = JSON.parse(process.argv[2]);
const connectionString = `postgres://postgres@127.0.0.1:${asked.port}/postgres`;
const logger = new Logger(() => (level, message) => {
  if (level === 'error' || level === 'warning') console.error(message);
});

async function work() {
  let begun = 0;
  let sent = 0;
  await run({
    noHandleSignals: true,
    logger,
    taskList: { noop: async () => { begun += 1; } },
    preset: {
      worker: {
        connectionString,
        concurrentJobs: asked.concurrency,
        maxPoolSize: asked.connections,
        pollInterval: asked.poll_ms,
        localQueue: { size: asked.local_queue },
        // 0: completions that come together are written together, without waiting for more.
        completeJobBatchDelay: 0,
        failJobBatchDelay: 0,
      },
    },
  });
  setInterval(() => {
    if (begun !== sent) process.send((sent = begun));
  }, TELL_MS);
}

function startWorkers(begun) {
  return begun.map((_, number) => {
    const worker = fork(__filename, [process.argv[2]]);
    worker.on('message', (count) => { begun[number] = count; });
    worker.on('exit', (code) => fail(`a worker ended with ${code}`));
    return worker;
  });
}

async function insert(utils, runs, due) {
  for (let start = 0; start < runs; start += BATCH) {
    const count = Math.min(BATCH, runs - start);
    const job = { identifier: 'noop', payload: JSON.parse(asked.payload), runAt: new Date(due) };
    await utils.addJobs(Array(count).fill(job));
  }
}

// Resolves when so many runs were begun and no job is left, each completion committed.
async function drained(utils, begun, runs, due) {
  const until = due + PATIENCE_MS + runs;
  const sum = () => begun.reduce((all, count) => all + count, 0);
  while (sum() < runs) {
    if (Date.now() > until) fail(`${sum()} of ${runs} runs were begun in time`);
    await sleep(10);
  }
  const left = 'select exists (select from graphile_worker._private_jobs) as any';
  while ((await utils.withPgClient((client) => client.query(left))).rows[0].any) {
    if (Date.now() > until) fail('all runs were begun, but not all are completed');
    await sleep(5);
  }
}

async function drive() {
  const utils = await makeWorkerUtils({ connectionString, logger });
  await utils.migrate();
  const begun = Array(asked.workers).fill(0);
  const workers = startWorkers(begun);

  const warm = Date.now();
  await insert(utils, WARM_UP, warm);
  await drained(utils, begun, WARM_UP, warm);

  const began = Date.now();
  const due = began + (1000 * asked.runs) / asked.insert_rate + ROOM_MS;
  await insert(utils, asked.runs, due);
  const took = (Date.now() - began) / 1000;
  if (Date.now() > due) fail(`inserting took ${took} s, which is too long; has the machine other work?`);
  await drained(utils, begun, WARM_UP + asked.runs, due);
  const seconds = (Date.now() - due) / 1000;

  for (const worker of workers) {
    worker.removeAllListeners('exit');
    worker.kill('SIGKILL');
  }
  const total = begun.reduce((all, count) => all + count, 0) - WARM_UP;
  console.log(JSON.stringify({ begun: total, seconds, inserted_per_s: asked.runs / took }));
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
