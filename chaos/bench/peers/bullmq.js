// BullMQ with Redis, for load.js.
'use strict';
const { Queue, Worker } = require('bullmq');

const QUEUE = 'noop';
const MASTER = 'bench';

module.exports = class {
  constructor(asked) {
    this.asked = asked;
    const { port, sentinels } = asked;
    const host = '127.0.0.1';
    this.connection = {
      ...(sentinels.length
        ? { name: MASTER, sentinels: sentinels.map((one) => ({ host, port: one })) }
        : { host, port }),
      maxRetriesPerRequest: null,
    };
  }

  async install() {}

  async connect() {
    this.queue = new Queue(QUEUE, { connection: this.connection });
    this.queue.on('error', (error) => console.error(error.message));
    await this.queue.waitUntilReady();
  }

  async insert(due) {
    const payload = JSON.parse(this.asked.payload);
    const now = Date.now();
    await this.queue.addBulk(due.map((instant) => ({
      name: QUEUE,
      data: { due: instant, ...payload },
      opts: { delay: Math.max(0, 1000 * instant - now), removeOnComplete: true },
    })));
  }

  async left() {
    const counts = await this.queue.getJobCounts('delayed', 'wait', 'active', 'prioritized');
    return Object.values(counts).some((count) => count > 0);
  }

  async work(began) {
    const worker = new Worker(QUEUE, async (job) => began(job.data.due), {
      connection: this.connection,
      concurrency: this.asked.concurrency,
    });
    worker.on('error', (error) => console.error(error.message));
    await worker.waitUntilReady();
  }
};
