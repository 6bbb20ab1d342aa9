/** Successes on their way to the server. */

import { Problem, turn, type Api } from "./api.js";
import type { Abort } from "./job.js";

/** A success that waits for its answer. */
interface Finish {
  text: string;
  over: Abort;
  resolve: () => void;
  reject: (error: unknown) => void;
}

const maxTogether = 100;
const maxBytes = 512 * 1024;

/** Sends successes: one at once, and those that come while a call is under way together in the next one. */
export class Finishes {
  private waiting: Finish[] = [];
  private isBusy = false;

  /** ended ends all calls. */
  constructor(private readonly api: Api, private readonly ended: AbortSignal) {}

  /** Returns when the success is recorded, or the attempt is over before it is sent. It throws its Problem. */
  send(body: object, over: Abort): Promise<void> {
    return new Promise((resolve, reject) => {
      this.waiting.push({ text: JSON.stringify(body), over, resolve, reject });
      if (!this.isBusy) void this.sendAll();
    });
  }

  private async sendAll(): Promise<void> {
    this.isBusy = true;
    do {
      await turn();
      await this.sendGroup(this.next());
    } while (this.waiting.length > 0);
    this.isBusy = false;
  }

  /** Takes the next group. */
  private next(): Finish[] {
    this.waiting = this.waiting.filter((f) => !f.over.aborted || f.resolve());
    let n = 0;
    for (let bytes = 0; n < Math.min(this.waiting.length, maxTogether); n++) {
      bytes += this.waiting[n]!.text.length;
      if (n > 0 && bytes > maxBytes) break;
    }
    return this.waiting.splice(0, n);
  }

  private async sendGroup(group: Finish[]): Promise<void> {
    if (group.length === 0) return;
    try {
      const answer = await this.api.repeat<{ tasks: { problem?: Record<string, unknown> }[] }>("/v1/work:finish", {
        text: `{"tasks":[${group.map((f) => f.text).join(",")}]}`, signal: this.ended,
      });
      group.forEach((f, i) => {
        const problem = answer.tasks[i]?.problem;
        if (problem) f.reject(new Problem(Number(problem.status), problem));
        else f.resolve();
      });
    } catch (error) {
      if (group.length === 1 || !(error instanceof Problem)) group.forEach((f) => f.reject(error));
      else for (const f of group) await this.sendGroup([f]); // one of them may be at fault
    }
  }
}
