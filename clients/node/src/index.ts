/** Client of taskledger: enqueue in your transaction, work on tasks, wait for results, subscribe to events. */

export { NoAnswer, Problem } from "./api.js";
export { Client, TaskFailed, WaitTimeout, type EventsOptions, type LedgerEvent } from "./client.js";
export {
  enqueueBy, enqueueStatement, OtherArgs, type Enqueued, type EnqueueOptions, type Key, type Query, type Statement,
} from "./enqueue.js";
export type { Database } from "./exactly.js";
export { Cancelled, Job, Permanent, Retry, Snooze, type RetryOptions } from "./job.js";
export { currentJob, log, setLogger, type LogRecord } from "./log.js";
export { Worker, type Handler, type WorkerOptions } from "./worker.js";
