// pg-boss, for load.js.
'use strict';
const PgBoss = require('pg-boss');

const QUEUE = 'noop';

module.exports = class {
  constructor(asked) {
    this.asked = asked;
    this.boss = new PgBoss({
      connectionString: `postgres://postgres@127.0.0.1:${asked.port}/postgres`,
      max: asked.connections,
    });
    this.boss.on('error', (error) => console.error(error.message));
  }

  async install() {
    await this.boss.start();
    await this.boss.createQueue(QUEUE);
  }

  async connect() {}

  async insert(due) {
    const payload = JSON.parse(this.asked.payload);
    await this.boss.insert(due.map((instant) => (
      { name: QUEUE, data: { due: instant, ...payload }, startAfter: new Date(1000 * instant) }
    )));
  }

  async left() {
    const asked = "select exists (select from pgboss.job where name = $1 and state < 'completed') as any";
    return (await this.boss.getDb().executeSql(asked, [QUEUE])).rows[0].any;
  }

  async work(began) {
    await this.boss.start();
    const { asked } = this;
    const options = { batchSize: asked.batch_size, pollingIntervalSeconds: asked.poll_s };
    for (let number = 0; number < asked.pollers; number += 1) {
      await this.boss.work(QUEUE, options, async (jobs) => {
        for (const job of jobs) began(job.data.due);
      });
    }
  }
};
