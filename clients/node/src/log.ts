/** Contextual logging: lines of the client and of handlers, with the task. */

import { AsyncLocalStorage } from "node:async_hooks";
import type { Job } from "./job.js";

/** The job whose handler runs, in everything that it calls. */
export const current = new AsyncLocalStorage<Job>();

export interface LogRecord {
  level: "info" | "warn" | "error";
  message: string;
  kind?: string; bizId?: string; attempt?: number;
  [member: string]: unknown;
}

let write = (record: LogRecord): void => {
  const { level, message, kind, bizId, attempt, ...more } = record;
  const task = kind === undefined ? "" : `${kind}/${bizId} #${attempt}: `;
  console[level](`taskledger: ${task}${message}`, ...(Object.keys(more).length > 0 ? [more] : []));
};

/** Sends the records to another logger, such as: setLogger(r => pino[r.level](r, r.message)). */
export function setLogger(logger: (record: LogRecord) => void): void {
  write = logger;
}

/** Logs a record with the task of the current handler, if there is one. */
export function log(level: LogRecord["level"], message: string, more?: object, job = current.getStore()): void {
  write({ level, message, ...(job && { kind: job.kind, bizId: job.bizId, attempt: job.attempt }), ...more });
}

/** The job whose handler runs. */
export const currentJob = (): Job | undefined => current.getStore();
