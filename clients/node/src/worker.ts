/** The worker: it asks for tasks, runs their handlers, and reports how they end. */

import { randomBytes } from "node:crypto";
import { hostname } from "node:os";
import { Api, Problem, sleep, turn } from "./api.js";
import { Exactly, type Database } from "./exactly.js";
import { Finishes } from "./finishes.js";
import { Abort, Cancelled, failed, finished, Job, type Outcome, type WireTask } from "./job.js";
import { log } from "./log.js";
import { inAttempt } from "./telemetry.js";

/** Options of a Worker. Durations are in seconds. */
export interface WorkerOptions<C = undefined> {
  /** Of taskledger serve, or of the handler that is mounted in another server. */
  url: string;
  /** Of the role worker. */
  token?: string | undefined;
  /** A name for people. Default: the host and the process. */
  name?: string;
  /** How many handlers run at a time. Default: 10. */
  slots?: number;
  /** How long an attempt may take. Default: 900. */
  timeout?: number;
  /** Default: at least once, or exactly once with database. */
  guarantee?: "at least once" | "at most once";
  /** Each handler runs in a transaction of it, which also finishes the task: exactly once. */
  database?: Database<C>;
  /** How long handlers may take at a shutdown. Then they are cancelled, and others get their tasks. Default: 20. */
  shutdownTimeout?: number;
  /** How long one call waits for a task. Default: 20. */
  wait?: number;
  /** In place of the global fetch, for example for certificates. */
  fetch?: typeof fetch;
}

interface Asked {
  batch: string;
  heartbeat_every: number;
  tasks: WireTask[];
  unknown_kinds?: { kind: string; detail: string }[]; // that never had a task
}

export type Handler<Args, C> = (job: Job<Args>, connection: C) => unknown;

/** A task at work. over aborts when its outcome is not reported any more. */
interface Attempt {
  job: Job;
  offer: string; // the event that made the task available
  given: WireTask; // as the server gave it last
  over: Abort;
  done: Promise<void>;
}

/** Works on tasks of the kinds for which it has handlers. */
export class Worker<C = undefined> {
  readonly guarantee: string;
  private readonly name: string;
  private readonly session = randomBytes(16).toString("hex");
  private readonly slots: number;
  private readonly shutdownTimeout: number;
  private readonly handlers = new Map<string, { handler: Handler<unknown, C>; retry: object | undefined }>();
  private readonly api: Api;
  private readonly exactly: Exactly<C> | undefined;
  private readonly work = new Map<string, Attempt>();
  private readonly unsent = new Map<string, Outcome>(); // by offer, until they are recorded or forgotten
  private readonly warned = new Set<string>();
  private running = 0; // handlers: the outcomes of the others are on their way
  private readonly stopping = new AbortController();
  private readonly ended = new AbortController();
  private readonly finishes: Finishes;
  private every = 10;
  private beats: Promise<void> | undefined;
  private failure: { error: unknown } | undefined;
  private wake = () => {};

  constructor(private readonly options: WorkerOptions<C>) {
    const { slots = 10, database, guarantee, name = `${hostname()}-${process.pid}` } = options;
    if (!Number.isInteger(slots) || slots < 1) throw new RangeError(`slots must be at least 1, got ${slots}`);
    if (database && guarantee) throw new TypeError("guarantee must not be set together with database");
    this.api = new Api(options.url, options.token, options.fetch);
    this.finishes = new Finishes(this.api, this.ended.signal);
    this.slots = slots;
    this.shutdownTimeout = options.shutdownTimeout ?? 20;
    this.guarantee = database ? "exactly once" : guarantee ?? "at least once";
    this.name = database ? `${name}-${this.session.slice(0, 8)}`.slice(-128) : name; // a lease belongs to one process
    this.exactly = database && new Exactly(
      database, this.name, () => [...this.handlers.keys()], (kind) => this.handlers.get(kind)?.retry);
  }

  /**
   * Sets the handler of a kind. It gets the job, and with a database the connection; its result is the task's.
   * retry is the policy of tasks without their own.
   */
  handle<Args = any>(kind: string, handler: Handler<Args, C>, options: { retry?: object } = {}): this {
    if (this.handlers.has(kind)) throw new TypeError(`kind ${kind} has two handlers`);
    this.handlers.set(kind, { handler: handler as Handler<unknown, C>, retry: options.retry });
    return this;
  }

  /**
   * Works until SIGTERM, SIGINT or stop. It throws a Problem if the server refuses the worker: its token, a kind, the
   * guarantee.
   */
  async run(): Promise<void> {
    const onSignal = () => this.stop(); // a second one ends the process
    process.once("SIGTERM", onSignal).once("SIGINT", onSignal);
    try {
      if (this.handlers.size < 1 || this.handlers.size > 100) {
        throw new RangeError(`a worker needs handlers of 1 to 100 kinds, got ${this.handlers.size}`);
      }
      await this.exactly?.keep(this.stopping.signal);
      if (this.exactly) this.beats = this.heartbeats();
      await this.ask().catch((error) => this.fail(error));
      await this.shutDown();
      await this.beats;
    } catch (error) {
      this.fail(error);
    } finally {
      process.off("SIGTERM", onSignal).off("SIGINT", onSignal);
    }
    if (this.failure) throw this.failure.error;
  }

  /** Begins a graceful shutdown, at whose end run returns. */
  stop(): void {
    this.stopping.abort();
    this.wake();
  }

  private fail(error: unknown): void {
    if (this.stopping.signal.aborted && error === this.stopping.signal.reason) return;
    if (!this.failure) {
      this.failure = { error };
      log("error", `the worker ${this.name} stops`, { error });
    }
    this.stop();
  }

  private async ask(): Promise<void> {
    const { signal } = this.stopping;
    const wait = this.options.wait ?? 20;
    for (let received = ""; !signal.aborted; ) {
      await turn();
      const free = Math.min(this.slots - this.running, 4 * this.slots - this.work.size);
      if (free <= 0) {
        await new Promise<void>((resolve) => { this.wake = resolve; });
        continue;
      }
      const answer = await this.api.repeat<Asked>("/v1/work", {
        body: {
          worker: this.name, session: this.session, kinds: [...this.handlers.keys()], guarantee: this.guarantee,
          limit: Math.min(free, 100), wait, received, timeout: this.options.timeout ?? 900, protocol: "1.0",
        },
        signal, timeout: wait + 15,
      });
      received = answer.batch;
      this.every = answer.heartbeat_every;
      this.beats ??= this.heartbeats();
      for (const { detail } of answer.unknown_kinds ?? []) { // it names similar kinds once there are some
        if (this.warned.size < this.warned.add(detail).size) log("warn", detail);
      }
      for (const task of answer.tasks) this.begin(task);
    }
  }

  private begin(task: WireTask): void {
    const offer = `${task.version} ${task.available_at} ${task.kind}/${task.biz_id}`;
    let key = offer;
    for (let same; (same = this.work.get(key)); key = `/${key}`) {
      if (!same.over.aborted) return void (same.given = task); // again, perhaps by another process of serve
    }
    let last = 0;
    const job: Job = new Job(task, this.exactly ? undefined : async (value) => {
      if (job.over.aborted) throw job.over.reason;
      if (last && Date.now() - last < 1000) return; // the server would not record it
      last = Date.now();
      await this.progress(attempt, value);
    });
    const attempt: Attempt = { job, offer, given: task, over: new Abort(), done: Promise.resolve() };
    this.work.set(key, attempt);
    this.running++;
    attempt.done = this.perform(attempt).catch((error) => {
      if (!attempt.over.aborted) this.fail(error);
    }).finally(() => {
      this.work.delete(key);
      if (this.unsent.has(offer)) setTimeout(() => this.unsent.delete(offer), 30_000).unref();
      this.wake();
    });
  }

  private async perform(attempt: Attempt): Promise<void> {
    const { job, offer, over } = attempt;
    if (this.exactly) {
      return this.exactly.work(job, over.signal, (c) => this.invoke(job, c)).finally(() => { this.running--; });
    }
    const outcome = this.unsent.get(offer) ?? await this.invoke(job, undefined as C);
    this.running--;
    this.wake();
    if (over.aborted) return;
    this.unsent.set(offer, outcome); // if the offer comes again, it is not begun again
    try {
      await this.end(attempt, outcome.verb, outcome.body);
    } catch (error) {
      if (!(error instanceof Problem) || (error.status !== 400 && error.status !== 413)) throw error;
      job.log.warn("the server refuses the outcome", { error });
      await this.end(attempt, "fail", { error: `${outcome.verb} was refused: ${error.message}`, error_type: error.name });
    }
  }

  /** Runs the handler of a job. */
  async invoke(job: Job, connection: C): Promise<Outcome> {
    const registered = this.handlers.get(job.kind);
    try {
      if (!registered) throw new Error(`the worker has no handler of ${job.kind}`);
      return await inAttempt(job, async () => finished(await registered.handler(job, connection)));
    } catch (error) {
      return failed(error, registered?.retry, job);
    }
  }

  /** Reports an outcome until the server has answered, or the attempt is over: under a newer fence if there is one. */
  private async end(attempt: Attempt, verb: string, body: object): Promise<void> {
    const { job, offer, given, over } = attempt;
    const whole = { ...attemptOf(given), ...body };
    try {
      if (verb === "finish") await this.finishes.send(whole, over);
      else await this.api.repeat(`/v1/work:${verb}`, { body: whole, signal: over.signal });
      if (!over.aborted) this.unsent.delete(offer);
    } catch (error) {
      if (!(error instanceof Problem) || error.code !== "attempt_ended") throw error;
      if (given.fence !== attempt.given.fence) return this.end(attempt, verb, body);
      job.log.warn("the outcome is not recorded", { error });
    }
  }

  private async progress(attempt: Attempt, progress: unknown): Promise<void> {
    const { job, given } = attempt;
    try {
      await this.api.once("/v1/work:progress", { body: { ...attemptOf(given), progress } });
    } catch (error) {
      if (!(error instanceof Problem)) return job.log.info("progress is not recorded", { error });
      if (given.fence !== attempt.given.fence) return; // the next report is of the newer one
      if (error.code === "attempt_ended") drop(attempt, "fenced");
      if (job.over.aborted) throw job.over.reason;
      if (!error.isTemporary) throw error;
    }
  }

  private async heartbeats(): Promise<void> {
    const { signal } = this.ended;
    while (!signal.aborted) {
      try {
        await sleep(this.every, signal);
        await this.beat(signal);
      } catch (error) {
        if (!signal.aborted) this.fail(error);
      }
    }
  }

  private async beat(signal: AbortSignal): Promise<void> {
    if (this.exactly) return this.exactly.keep(signal);
    const holds = [...this.work.values()].filter((a) => !a.over.aborted).map((a) => a.given.fence);
    if (holds.length === 0) return;
    const answer = await this.api.repeat<{ heartbeat_every: number; ended: { fence: string; reason: string }[] }>(
      "/v1/work:heartbeat", { body: { session: this.session, holds }, signal, timeout: 10 });
    this.every = answer.heartbeat_every;
    for (const { fence, reason } of answer.ended) {
      const attempt = [...this.work.values()].find((a) => a.given.fence === fence);
      attempt?.job.log.warn(`the attempt is over: ${reason}`);
      if (attempt) drop(attempt, reason);
    }
  }

  /** Waits for the handlers, and gives back the tasks of those that have not ended. */
  private async shutDown(): Promise<void> {
    const idle = () => Promise.all([...this.work.values()].map((a) => a.done));
    if (this.work.size > 0) {
      log("info", `${this.name} stops: it waits up to ${this.shutdownTimeout} s for ${this.work.size} tasks`);
    }
    await within(this.shutdownTimeout, idle());
    const left = [...this.work.values()];
    const holds = left.filter((a) => !a.over.aborted).map((a) => a.given.fence);
    for (const attempt of left) {
      attempt.job.log.warn("the attempt is over: shutdown");
      drop(attempt, "shutdown");
    }
    if (left.length > 0) await within(1, idle());
    this.ended.abort();
    try {
      await this.exactly?.renew(0);
      const signal = AbortSignal.timeout(5000);
      // Those that another process of serve has given, and then the session.
      if (!this.exactly && holds.length > 0) {
        await this.api.repeat("/v1/work:release", { body: { session: this.session, holds }, signal });
      }
      await this.api.repeat("/v1/work:release", { body: { session: this.session }, signal });
    } catch (error) {
      log("warn", "tasks are not given back, and go to other workers later", { error });
    }
  }
}

const attemptOf = ({ kind, biz_id, attempt, fence }: WireTask) => ({ kind, biz_id, attempt, fence });

function drop({ job, over }: Attempt, reason: string): void {
  for (const abort of [over, job.over]) abort.abort(new Cancelled(reason));
}

/** Waits for a promise, but at most for seconds. */
async function within(seconds: number, promise: Promise<unknown>): Promise<void> {
  const late = new AbortController();
  await Promise.race([promise, sleep(seconds, late.signal).catch(() => {})]);
  late.abort();
}
