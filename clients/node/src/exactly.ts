/** Exactly once: attempts that begin, work and end in the worker's own database, in SQL. */

import { backoff, sleep } from "./api.js";
import { call, type Statement } from "./enqueue.js";
import { Cancelled, failed, type Job, type Outcome } from "./job.js";
import { log } from "./log.js";

/** Transactions, each on a connection of its own, and statements with $1, $2, ..., whose values are text. */
export interface Database<C> {
  /** Runs work in a transaction: commits it, or rolls it back if work throws. */
  transaction<T>(work: (connection: C) => Promise<T>): Promise<T>;
  query(connection: C, text: string, values: string[]): Promise<Record<string, unknown>[]>;
}

interface DriverError {
  code?: unknown;
  cause?: DriverError;
  meta?: { code?: unknown; driverAdapterError?: DriverError }; // of Prisma, whose own codes are such as P2010
  originalCode?: unknown;
}

/** The SQLSTATE of an error of a driver, or "". */
export function sqlState(error: unknown): string {
  for (let e = error as DriverError | undefined; e; e = e.meta?.driverAdapterError ?? e.cause) {
    for (const code of [e.originalCode, e.meta?.code, e.code]) {
      if (typeof code === "string" && /^(?!P[1-9]|E[A-Z])[0-9A-Z]{5}$/.test(code)) return code;
    }
  }
  return "";
}

/** Whether the database refuses a call: the next one would fail too. */
const isRefused = (state: string) => ["22", "42", "0A", "28", "3D"].includes(state.slice(0, 2));

class RollBack extends Error {
  constructor(readonly outcome: Outcome) {
    super("the handler has failed");
  }
}

/** A worker's attempts in its own database. */
export class Exactly<C> {
  constructor(
    private readonly database: Database<C>,
    readonly worker: string,
    private readonly kinds: () => string[],
    private readonly retryOf: (kind: string) => object | undefined,
  ) {}

  /** Renews the lease: while it lasts, no other worker takes over this worker's attempts. */
  async renew(seconds = 30): Promise<void> {
    const kinds = `{${this.kinds().map((kind) => `"${kind}"`).join(",")}}`;
    await this.run(call("heartbeat", "", {
      worker: [this.worker, "text"], kinds: [kinds, "text[]"], lease_for: [`${seconds} seconds`, "interval"],
    }));
  }

  /** Renews the lease until it succeeds, or signal aborts. It throws if the database refuses it. */
  async keep(signal: AbortSignal): Promise<void> {
    for (let n = 0; ; n++) {
      try {
        return await this.renew();
      } catch (error) {
        if (isRefused(sqlState(error))) throw error;
        log("warn", "the lease is not renewed", { error });
        await sleep(backoff(error, n), signal);
      }
    }
  }

  /** Claims the task, runs its handler in a transaction that finishes it, or reports the failure. */
  async work(job: Job, over: AbortSignal, handle: (connection: C) => Promise<Outcome>): Promise<void> {
    if (!(await this.claim(job, over))) return;
    const late = setTimeout(() => job.over.abort(new Cancelled("timeout")), Math.min(job.timeout * 1000, 2 ** 31 - 1));
    let outcome = await this.transact(job, over, handle).finally(() => clearTimeout(late));
    for (let n = 0; outcome && !over.aborted; n++) {
      try {
        await this.run(ending(job, outcome));
        return;
      } catch (error) {
        const state = sqlState(error);
        if (state === "TL001") return; // the attempt has ended; so has one whose commit succeeded without an answer
        job.log.warn("the outcome is not recorded", { error });
        if (isRefused(state)) {
          outcome = n === 0 ? { verb: "fail", body: { error: `the outcome was refused: ${error}` } } : undefined;
        } else {
          await sleep(backoff(error, n), over);
        }
      }
    }
  }

  /** Runs a statement in a transaction of its own. */
  private run({ text, values }: Statement): Promise<Record<string, unknown>[]> {
    return this.database.transaction((connection) => this.database.query(connection, text, values));
  }

  /** Begins the attempt, and returns whether this worker has it. */
  private async claim(job: Job, over: AbortSignal): Promise<boolean> {
    const args: Record<string, [string, string]> = {
      kind: [job.kind, "text"], biz_id: [job.bizId, "text"], worker: [this.worker, "text"],
    };
    for (let n = 0; !over.aborted; n++) {
      try {
        const [row] = await this.run(call("claim", "version, attempt, cast(args as text) as args", args));
        if (!row) return false;
        job.version = Number(row.version);
        job.attempt = Number(row.attempt);
        if (!Buffer.isBuffer(job.args)) job.args = typeof row.args === "string" ? JSON.parse(row.args) : undefined;
        return true;
      } catch (error) {
        const state = sqlState(error);
        if (state === "TL003") return false; // the kind is paused
        if (state === "TL002") await this.renew();
        else if (isRefused(state)) throw error;
        job.log.warn("the task is not claimed", { error });
        await sleep(backoff(error, n), over);
        args.resume = ["true", "boolean"]; // the claim may have been committed without an answer
      }
    }
    return false;
  }

  /** Runs the handler and finishes in one transaction. It returns the outcome that is to be recorded. */
  private async transact(
    job: Job, over: AbortSignal, handle: (connection: C) => Promise<Outcome>,
  ): Promise<Outcome | undefined> {
    try {
      await this.database.transaction(async (connection) => {
        const outcome = await handle(connection);
        if (outcome.verb !== "finish" || over.aborted) throw new RollBack(outcome);
        const { text, values } = ending(job, outcome);
        await this.database.query(connection, text, values);
      });
    } catch (error) {
      if (error instanceof RollBack) return error.outcome;
      if (sqlState(error) !== "TL001") return failed(error, this.retryOf(job.kind), job);
      job.log.warn("the attempt has ended; its transaction is rolled back");
    }
    return undefined;
  }
}

/** The call that ends an attempt. */
function ending(job: Job, { verb, body }: Outcome): Statement {
  const args: Record<string, [string, string]> = {
    kind: [job.kind, "text"], biz_id: [job.bizId, "text"], version: [String(job.version), "integer"],
  };
  const interval = (seconds: unknown): [string, string] => [`${Number(seconds).toFixed(6)} seconds`, "interval"];
  if (verb === "finish") {
    if ("result" in body) args.result = [JSON.stringify(body.result), "json"];
  } else if (verb === "snooze") {
    if ("at" in body) args.run_at = [String(body.at), "timestamptz"];
    else args.run_in = interval(body.in);
  } else {
    args.error = [String(body.error), "text"];
    args.error_type = [String(body.error_type ?? ""), "text"];
    if ("retry_in" in body) args.retry_in = interval(body.retry_in);
    if (body.permanent) args.permanent = ["true", "boolean"];
    if (body.retry) args.retry = [JSON.stringify(body.retry), "json"];
  }
  return call(verb, "", args);
}
