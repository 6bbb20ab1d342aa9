/** An attempt as its handler sees it, and its outcome. All durations are in seconds. */

import { format } from "node:util";
import { log } from "./log.js";

/** Thrown by a handler: the task is dead, and is not tried again. */
export class Permanent extends Error {
  override name = "Permanent";
}

export interface RetryOptions extends ErrorOptions {
  /** Seconds until the next attempt. Default: by the retry policy. */
  retryIn?: number;
  /** For the guarantee "at most once": nothing has happened. */
  safe?: boolean;
}

/** Thrown by a handler: the attempt has failed, and the next begins after a delay. */
export class Retry extends Error {
  override name = "Retry";
  readonly retryIn: number | undefined;
  readonly safe: boolean;

  constructor(message: string, options: RetryOptions = {}) {
    super(message, options);
    this.retryIn = options.retryIn;
    this.safe = options.safe ?? false;
  }
}

/** Thrown by a handler: the task continues after seconds, or at a time, and has not failed. */
export class Snooze extends Error {
  override name = "Snooze";

  constructor(readonly until: number | Date) {
    super(`snoozed until ${until}`);
  }
}

/** The reason of job.signal. */
export class Cancelled extends Error {
  override name = "Cancelled";

  /** reason is cancelled, timeout, deadline, fenced, unknown or shutdown. */
  constructor(readonly reason: string) {
    super(`the attempt is over: ${reason}`);
  }
}

/** An AbortController that is made when somebody asks for its signal: most attempts end before. */
export class Abort {
  reason: unknown;
  aborted = false;
  private controller: AbortController | undefined;

  abort(reason: unknown): void {
    if (this.aborted) return;
    this.aborted = true;
    this.reason = reason;
    this.controller?.abort(reason);
  }

  get signal(): AbortSignal {
    this.controller ??= new AbortController();
    if (this.aborted) this.controller.abort(this.reason);
    return this.controller.signal;
  }
}

/** A task as the server gives it. */
export interface WireTask {
  kind: string; biz_id: string;
  version: number; available_at: string; priority: number; finish_by?: string;
  args?: unknown; args_base64?: string;
  attempt: number; fence?: string; timeout: number;
  traceparent?: string; tracestate?: string;
}

/** One attempt of a task. args is the decoded JSON, or a Buffer if the args are not JSON. */
export class Job<Args = unknown> {
  readonly kind: string;
  readonly bizId: string;
  args: Args;
  attempt: number;
  version: number;
  readonly priority: number;
  readonly availableAt: Date;
  readonly finishBy: Date | undefined;
  readonly timeout: number;
  readonly traceparent: string | undefined;
  readonly tracestate: string | undefined;
  /** @internal */
  readonly over = new Abort();

  /** @internal */
  constructor(task: WireTask, private readonly report?: (value: unknown) => Promise<void>) {
    this.kind = task.kind;
    this.bizId = task.biz_id;
    this.args = (task.args_base64 === undefined ? task.args : Buffer.from(task.args_base64, "base64")) as Args;
    this.attempt = task.attempt;
    this.version = task.version;
    this.priority = task.priority;
    this.availableAt = new Date(task.available_at);
    this.finishBy = task.finish_by === undefined ? undefined : new Date(task.finish_by);
    this.timeout = task.timeout;
    this.traceparent = task.traceparent;
    this.tracestate = task.tracestate;
  }

  /** Aborts when the attempt is over: pass it to fetch, timers and queries. Its reason is a Cancelled. */
  get signal(): AbortSignal {
    return this.over.signal;
  }

  /** Reports how far the work is, as JSON of at most 16 KiB; at most one report a second is recorded. */
  async progress(value: unknown): Promise<void> {
    if (!this.report) throw new Error("progress is not available if the worker finishes tasks in its own database");
    await this.report(value);
  }

  /** Logs with the task and the attempt, which log.* outside of a handler does not have. */
  get log() {
    const at = (level: "info" | "warn" | "error") =>
      (message: string, more?: object) => log(level, message, more, this);
    return { info: at("info"), warn: at("warn"), error: at("error") };
  }
}

/** How an attempt ended: the call, and the members of its body. */
export interface Outcome {
  verb: "finish" | "fail" | "snooze";
  body: Record<string, unknown>;
  error?: unknown;
}

const maxResult = 256 * 1024;

/** The outcome of a handler that returned value. It throws if that is not JSON. */
export function finished(value: unknown): Outcome {
  let text: string | undefined;
  try {
    text = JSON.stringify(value);
  } catch (error) {
    throw new TypeError(`the handler's result is not JSON: ${(error as Error).message}`);
  }
  const size = Buffer.byteLength(text ?? "");
  if (size > maxResult) {
    throw new RangeError(`the handler's result has ${size} bytes, at most ${maxResult} are stored: return a reference`);
  }
  return { verb: "finish", body: text === undefined ? {} : { result: value } };
}

/** The outcome of a handler that threw error. */
export function failed(error: unknown, retry: object | undefined, job: Job): Outcome {
  if (error instanceof Snooze) {
    const { until } = error;
    return { verb: "snooze", body: until instanceof Date ? { at: until.toJSON() } : { in: Number(until) }, error };
  }
  const cause = (error instanceof Permanent || error instanceof Retry) && error.cause ? error.cause : error;
  const message = job.over.aborted ? `the handler was cancelled: ${(job.over.reason as Cancelled).reason}`
    : error instanceof Error ? error.message || error.name : error;
  if (!job.over.aborted) job.log.warn("the attempt failed", { error });
  const body: Record<string, unknown> = {
    error: printable(message, 4096) || "the handler failed",
    error_type: printable(cause instanceof Error ? cause.name : typeof cause, 512),
  };
  if (error instanceof Error && error.stack) body.stack = printable(error.stack, 16384);
  if (error instanceof Permanent) body.permanent = true;
  if (error instanceof Retry && error.safe) body.safe = true;
  if (error instanceof Retry && error.retryIn !== undefined) body.retry_in = Number(error.retryIn);
  if (retry !== undefined) body.retry = retry;
  return { verb: "fail", body, error };
}

/** Text that JSON and PostgreSQL can store, of at most so many bytes. Any value has one: handlers throw anything. */
export function printable(value: unknown, most: number): string {
  const bytes = Buffer.from(format("%s", value).replaceAll("\0", "\ufffd"));
  if (bytes.length <= most) return bytes.toString();
  let end = most;
  while (end > 0 && (bytes[end]! & 0xc0) === 0x80) end--;
  return bytes.subarray(0, end).toString();
}
