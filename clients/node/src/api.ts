/** Calls of the HTTP API: problems, and the rules by which a call is repeated. */

/** An error that the server answered: RFC 9457, with a stable code and a cure. */
export class Problem extends Error {
  override readonly name = "Problem";
  readonly code: string;
  readonly detail: string;
  readonly cure: string;

  constructor(
    readonly status: number,
    readonly body: Record<string, unknown>,
    /** Seconds. */
    readonly retryAfter?: number,
  ) {
    const text = (member: string) => String(body[member] ?? "");
    super(`${status} ${text("code")}: ${text("detail")}` + (body.cure ? ` (${text("cure")})` : ""));
    this.code = text("code");
    this.detail = text("detail");
    this.cure = text("cure");
  }

  /** Whether the same call may succeed later. */
  get isTemporary(): boolean {
    return this.status === 408 || this.status === 429 || this.status >= 500;
  }

  static async of(response: Response): Promise<Problem> {
    const text = await response.text().catch(() => "");
    const after = response.headers.get("retry-after");
    let body: Record<string, unknown>;
    try {
      body = Object(JSON.parse(text));
    } catch {
      body = { detail: text.slice(0, 500) };
    }
    return new Problem(response.status, body, after && /^\d+$/.test(after) ? Number(after) : undefined);
  }
}

/** The server did not answer: the call may or may not have taken effect. */
export class NoAnswer extends Error {
  override readonly name = "NoAnswer";
}

/** Seconds until a call is repeated for the n-th time, from 0. */
export function backoff(error: unknown, n: number): number {
  if (error instanceof Problem && error.retryAfter !== undefined) return Math.min(error.retryAfter, 10);
  return Math.min(5, 0.1 * 2 ** Math.min(n, 10)) * (0.5 + Math.random());
}

/** Lets everything run that is ready, so that its requests go together. */
export const turn = () => new Promise<void>((resolve) => { setImmediate(resolve); });

/** Waits for seconds. If signal aborts, it throws the signal's reason. */
export function sleep(seconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const end = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", end);
      resolve();
    }, Math.min(seconds * 1000, 2 ** 31 - 1));
    signal?.addEventListener("abort", end, { once: true });
  });
}

export interface CallOptions {
  body?: unknown;
  /** In place of body: its JSON. */
  text?: string;
  headers?: Record<string, string>;
  /** Ends the call, and its repetition: the reason is thrown. */
  signal?: AbortSignal | undefined;
  /** Seconds that an answer may take. Default: 30. */
  timeout?: number;
}

/** A server and a token. */
export class Api {
  readonly url: string;

  constructor(
    url: string,
    private readonly token?: string | undefined,
    private readonly fetcher: typeof fetch = fetch,
  ) {
    if (!/^https?:$/.test(new URL(url).protocol)) {
      throw new TypeError(`url must be http://host:port or https://host:port, got ${url}`);
    }
    this.url = url.replace(/\/+$/, "");
  }

  /** Sends a request once, and returns the answer, whose body is unread. It throws Problem or NoAnswer. */
  async open(path: string, o: CallOptions = {}): Promise<Response> {
    const headers: Record<string, string> = { accept: "application/json", ...o.headers };
    if (this.token) headers.authorization = `Bearer ${this.token}`;
    const text = o.text ?? (o.body === undefined ? undefined : JSON.stringify(o.body));
    if (text !== undefined) headers["content-type"] = "application/json";
    let response: Response;
    try {
      response = await this.fetcher(this.url + path, {
        method: text === undefined ? "GET" : "POST", headers, body: text ?? null,
        signal: o.signal ?? null, redirect: "error",
      });
    } catch (error) {
      o.signal?.throwIfAborted();
      throw new NoAnswer(`${this.url} does not answer: ${reasonOf(error)}`, { cause: error });
    }
    if (!response.ok) throw await Problem.of(response);
    return response;
  }

  /** Sends a request once, and returns the JSON of the answer. */
  async once<T = unknown>(path: string, o: CallOptions = {}): Promise<T> {
    const late = new AbortController();
    const timer = setTimeout(() => late.abort(new Error("time-out")), (o.timeout ?? 30) * 1000);
    try {
      const signal = o.signal ? AbortSignal.any([o.signal, late.signal]) : late.signal;
      const response = await this.open(path, { ...o, signal });
      const text = await response.text();
      return (text ? JSON.parse(text) : undefined) as T;
    } catch (error) {
      o.signal?.throwIfAborted();
      if (error instanceof Problem || error instanceof NoAnswer) throw error;
      throw new NoAnswer(`${this.url} did not complete its answer: ${reasonOf(error)}`, { cause: error });
    } finally {
      clearTimeout(timer);
    }
  }

  /** Sends a request until it is answered, or signal aborts. */
  async repeat<T = unknown>(path: string, o: CallOptions = {}): Promise<T> {
    for (let n = 0; ; n++) {
      try {
        return await this.once<T>(path, o);
      } catch (error) {
        o.signal?.throwIfAborted();
        if (!(error instanceof NoAnswer) && !(error instanceof Problem && error.isTemporary)) throw error;
        await sleep(backoff(error, n), o.signal);
      }
    }
  }
}

function reasonOf(error: unknown): string {
  const e = error as { message?: string; cause?: { message?: string; code?: string } };
  return e?.cause?.message || e?.cause?.code || e?.message || String(error);
}
