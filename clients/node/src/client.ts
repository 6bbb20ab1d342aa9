/** Enqueue over HTTP, wait for results, and subscribe to events. Durations are in seconds. */

import { Api, backoff, NoAnswer, Problem, sleep } from "./api.js";
import { OtherArgs, taskBody, type EnqueueOptions, type Enqueued } from "./enqueue.js";
import { carrier } from "./telemetry.js";

/** The task that was waited for is dead, cancelled, expired or discarded. */
export class TaskFailed extends Error {
  override readonly name = "TaskFailed";
  readonly state: string;

  constructor(readonly task: Record<string, unknown>) {
    const cause = task.error ?? task.reason;
    super(`${task.kind}/${task.biz_id} is ${task.state}` + (cause ? `: ${cause}` : ""));
    this.state = String(task.state);
  }
}

/** The time is up. The task continues. */
export class WaitTimeout extends Error {
  override readonly name = "WaitTimeout";
}

/** An event of the ledger. Store id with its effect: events({startAfter: id}) continues there. */
export interface LedgerEvent {
  id: string;
  type: string;
  kind: string;
  bizId: string;
  version: number;
  attempt: number;
  position: number;
  recordedAt: Date;
  data: unknown;
  body: Record<string, unknown>;
}

export interface EventsOptions {
  /** The id of the last event that the caller has handled, or 0 for the beginning. Default: now. */
  startAfter?: string | number | undefined;
  /** Kinds, or beginnings such as coupon.*. Default: all. */
  kinds?: string[];
  types?: string[];
  /** Ends the stream. */
  signal?: AbortSignal;
}

const final = ["succeeded", "dead", "cancelled", "expired", "discarded"];

/** Calls of the HTTP API. */
export class Client {
  private readonly api: Api;

  constructor(options: { url: string; token?: string | undefined; fetch?: typeof fetch }) {
    this.api = new Api(options.url, options.token, options.fetch);
  }

  /**
   * Enqueues a task. It is repeated until timeout, 30 s by default: a key names one task, so that this is safe. It
   * throws OtherArgs if the task exists with other args. In a transaction of your own, use an adapter's enqueue.
   */
  async enqueue(
    kind: string, bizId: string, args?: unknown, options: EnqueueOptions & { timeout?: number } = {},
  ): Promise<Enqueued> {
    const { timeout = 30, ...rest } = options;
    const signal = AbortSignal.timeout(timeout * 1000);
    const body = taskBody(kind, bizId, args, rest);
    try {
      const a = await this.api.repeat<Record<string, unknown>>("/v1/tasks", { body, headers: carrier(), signal });
      return {
        isNew: Boolean(a.new), state: String(a.state), version: Number(a.version), sameArgs: Boolean(a.same_args),
        position: Number(a.position), archived: Boolean(a.archived),
      };
    } catch (error) {
      if (error === signal.reason) throw new NoAnswer(`${kind}/${bizId} may not be enqueued: no answer in ${timeout} s`);
      if (error instanceof Problem && error.code === "other_args") {
        throw new OtherArgs(error.detail, { cause: error });
      }
      throw error;
    }
  }

  /**
   * Waits until the task has finished, and returns its result. It throws TaskFailed if it has not succeeded, WaitTimeout
   * after timeout seconds, Problem if the task does not exist.
   */
  async wait<Result = any>(
    kind: string, bizId: string, options: { timeout?: number; signal?: AbortSignal } = {},
  ): Promise<Result> {
    const end = Date.now() + (options.timeout ?? Infinity) * 1000;
    const path = `/v1/tasks/${encodeURIComponent(kind)}/${encodeURIComponent(bizId)}`;
    for (;;) {
      const left = Math.max(0, Math.min(20, (end - Date.now()) / 1000));
      const late = AbortSignal.timeout(Math.ceil((left + 15) * 1000));
      const signal = options.signal ? AbortSignal.any([options.signal, late]) : late;
      const task = await this.api.repeat<Record<string, unknown>>(`${path}?wait=${Math.floor(left)}`, {
        signal, timeout: left + 15,
      }).catch((error) => {
        if (error === late.reason && !options.signal?.aborted) return undefined;
        throw error;
      });
      if (task?.state === "succeeded") return task.result as Result;
      if (task && final.includes(String(task.state))) throw new TaskFailed(task);
      if (Date.now() >= end) throw new WaitTimeout(`${kind}/${bizId} is ${task?.state} after ${options.timeout} s`);
      if (left < 1) await sleep(Math.min(left, 0.1), options.signal); // the server waits whole seconds
    }
  }

  /**
   * Yields events as they are committed, until signal aborts; after a lost connection from the last one on. The first
   * events of a resumed stream may have been seen before: compare kind, bizId and version.
   */
  async *events(options: EventsOptions = {}): AsyncGenerator<LedgerEvent, void, undefined> {
    const { signal } = options;
    const chosen: [string, string][] = [];
    for (const kind of options.kinds ?? []) chosen.push(["kind", kind]);
    for (const type of options.types ?? []) chosen.push(["type", type]);
    const seen = new Set<string>();
    let last = options.startAfter === undefined ? "" : String(options.startAfter);
    for (let failures = 0; !signal?.aborted; failures++) {
      const query = new URLSearchParams(last === "" ? chosen : [...chosen, ["after", last]]);
      const lost = new AbortController();
      let timer: NodeJS.Timeout | undefined;
      const alive = () => {
        clearTimeout(timer);
        timer = setTimeout(() => lost.abort(new NoAnswer("the stream is silent")), 30_000);
      };
      let failure: unknown = new NoAnswer("the stream ended");
      try {
        alive();
        const response = await this.api.open(`/v1/events?${query}`, {
          headers: { accept: "text/event-stream" }, signal: signal ? AbortSignal.any([signal, lost.signal]) : lost.signal,
        });
        for await (const frame of frames(response.body!, alive)) {
          failures = 0;
          last = frame.id;
          if (frame.data === "") continue;
          const e = JSON.parse(frame.data);
          const key = JSON.stringify([e.kind, e.biz_id, e.version]);
          if (seen.has(key)) continue;
          seen.add(key);
          for (const oldest of seen.size > 50_000 ? seen : []) {
            seen.delete(oldest);
            break;
          }
          yield {
            id: frame.id, type: e.type, kind: e.kind, bizId: e.biz_id, version: e.version, attempt: e.attempt,
            position: e.position, recordedAt: new Date(e.recorded_at), data: e.data, body: e,
          };
        }
      } catch (error) {
        if (signal?.aborted) return;
        if (error instanceof Problem && !error.isTemporary) throw error;
        failure = error;
      } finally {
        clearTimeout(timer);
        lost.abort();
      }
      await sleep(backoff(failure, failures), signal).catch(() => {});
    }
  }
}

/** Parses Server-Sent Events. */
async function* frames(body: ReadableStream<Uint8Array>, alive: () => void) {
  const decoder = new TextDecoder();
  let rest = "";
  let id = "";
  let data: string[] = [];
  for await (const chunk of body as unknown as AsyncIterable<Uint8Array>) {
    alive();
    const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
    rest = lines.pop()!;
    for (const line of lines.map((l) => l.replace(/\r$/, ""))) {
      const [, name, value] = /^([^:]*):? ?(.*)$/s.exec(line)!;
      if (line === "" && id !== "") {
        yield { id, data: data.join("\n") };
        data = [];
      } else if (name === "id") id = value!;
      else if (name === "data") data.push(value!);
    }
  }
}
