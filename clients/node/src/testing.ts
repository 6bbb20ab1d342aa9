/** Handlers in tests: run one with given args, in this process, without a server. */

import { Cancelled, Job, type WireTask } from "./job.js";
import type { Worker } from "./worker.js";

export interface TestTask<C> {
  kind: string;
  bizId?: string;
  args?: unknown;
  attempt?: number;
  finishBy?: Date;
  /** For the handler of a worker with a database. Nothing is committed. */
  connection?: C;
  /** A reason for which the attempt is over from the beginning. */
  cancelled?: string;
}

/** How the attempt ended. retryIn and snoozed are what the handler asked for. */
export interface Tested {
  outcome: "finished" | "failed" | "dead" | "snoozed";
  result?: any;
  error?: any;
  retryIn?: number;
  snoozed?: number | string;
  progress: unknown[];
}

/** Runs the worker's handler of the task's kind. */
export async function runTask<C>(worker: Worker<C>, task: TestTask<C>): Promise<Tested> {
  if (worker.guarantee === "exactly once" && task.connection === undefined) {
    throw new TypeError("the worker has a database: give the handler a connection, as in { kind, connection: db }");
  }
  const progress: unknown[] = [];
  const wire: WireTask = {
    kind: task.kind, biz_id: task.bizId ?? "test", version: 1, attempt: task.attempt ?? 1, args: task.args, priority: 3,
    available_at: new Date().toISOString(), timeout: 900,
    ...(task.finishBy && { finish_by: task.finishBy.toISOString() }),
  };
  const job = new Job(wire, worker.guarantee === "exactly once" ? undefined : async (value) => void progress.push(value));
  if (task.cancelled) job.over.abort(new Cancelled(task.cancelled));
  const { verb, body, error } = await worker.invoke(job, task.connection as C);
  if (verb === "finish") return { outcome: "finished", result: body.result, progress };
  if (verb === "snooze") return { outcome: "snoozed", snoozed: (body.in ?? body.at) as number | string, progress };
  return {
    outcome: body.permanent ? "dead" : "failed", error, progress,
    ...(body.retry_in === undefined ? {} : { retryIn: body.retry_in as number }),
  };
}
