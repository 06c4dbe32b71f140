// graphile-worker, for load.js.
'use strict';
const { Logger, makeWorkerUtils, run } = require('graphile-worker');

const logger = new Logger(() => (level, message) => {
  if (level === 'error' || level === 'warning') console.error(message);
});

module.exports = class {
  constructor(asked) {
    this.asked = asked;
    this.connectionString = `postgres://postgres@127.0.0.1:${asked.port}/postgres`;
  }

  async install() {
    this.utils = await makeWorkerUtils({ connectionString: this.connectionString, logger });
    await this.utils.migrate();
  }

  async connect() {}

  async insert(due) {
    const payload = JSON.parse(this.asked.payload);
    await this.utils.addJobs(due.map((instant) => (
      { identifier: 'noop', payload: { due: instant, ...payload }, runAt: new Date(1000 * instant) }
    )));
  }

  async left() {
    const asked = 'select exists (select from graphile_worker._private_jobs) as any';
    return (await this.utils.withPgClient((client) => client.query(asked))).rows[0].any;
  }

  async work(began) {
    const { asked, connectionString } = this;
    const runner = await run({
      noHandleSignals: true,
      logger,
      taskList: { noop: async ({ due }) => began(due) },
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
    await runner.promise;
    throw new Error('the runner ended');
  }
};
