// Something a page shows, read from the server and kept up to date.
//
// Never more than one request of a resource is on its way. Notices that come meanwhile, or close after one another, are
// answered by one request more. What was read stays on the screen while the server is away.
import { onDestroy } from 'svelte';
import { ApiError, problemText } from '../api/client';
import { connection, type Topic } from './connection.svelte';

/** Notices within this time are answered by one request. */
const GATHER_MS = 300;
/** Verdicts change by time alone ("nothing heard for 15 minutes"): read again this often, notice or not. */
const REFRESH_MS = 30_000;
/** A large answer is read at most every so many times as long as reading it took. */
const REST_FACTOR = 4;
const REST_MS_MAX = 10_000;

export interface Problem {
  status: number;
  text: string;
}

export interface ResourceOptions {
  /** Which notices make it old. */
  topics: Topic[];
  /** Which ids of them; left out: all. */
  concerns?: (topic: Topic, id: string) => boolean;
  /** Read again by time as well. */
  refresh?: boolean;
}

export class Resource<T> {
  data = $state.raw<T | undefined>(undefined);
  /** Why the last attempt brought nothing. */
  problem = $state.raw<Problem | undefined>(undefined);
  /** The first answer is awaited. */
  loading = $state(true);

  #read: () => Promise<T>;
  #inFlight = false;
  #again = false;
  #generation = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #restMs = 0;
  #ended = false;

  /** To be made while a component is set up; ends with it. */
  constructor(read: () => Promise<T>, options: ResourceOptions) {
    this.#read = read;
    const unlisten = connection.listen((topic, id) => {
      const concerns =
        topic === 'all' || (options.topics.includes(topic) && (options.concerns?.(topic, id) ?? true));
      if (concerns) this.nudge();
    });
    const interval = setInterval(() => {
      if (options.refresh !== false && document.visibilityState === 'visible') this.nudge();
    }, REFRESH_MS);
    onDestroy(() => {
      this.#ended = true;
      unlisten();
      clearInterval(interval);
      clearTimeout(this.#timer);
    });
    void this.load();
  }

  /** Something changed: read again soon. */
  nudge(): void {
    if (this.#inFlight) this.#again = true;
    else this.#timer ??= setTimeout(() => void this.load(), Math.max(GATHER_MS, this.#restMs));
  }

  /** What is asked for changed: what was read is of something else. */
  reset(): void {
    this.#generation += 1;
    this.data = undefined;
    this.problem = undefined;
    this.loading = true;
    this.#inFlight = false;
    void this.load();
  }

  /** Reads now. */
  async load(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#inFlight) {
      this.#again = true;
      return;
    }
    if (this.#ended) return;
    const generation = this.#generation;
    this.#inFlight = true;
    const begun = performance.now();
    try {
      const data = await this.#read();
      if (generation !== this.#generation) return;
      this.data = data;
      this.problem = undefined;
      this.loading = false;
    } catch (error) {
      if (generation !== this.#generation) return;
      const status = error instanceof ApiError ? error.status : -1;
      this.problem = { status, text: problemText(error) };
      // A server that is away is waited for: the notice after its return reads everything again.
      this.loading = this.data === undefined && status === 0;
    } finally {
      if (generation === this.#generation) {
        this.#inFlight = false;
        this.#restMs = Math.min(REST_MS_MAX, (performance.now() - begun) * REST_FACTOR);
        if (this.#again) {
          this.#again = false;
          this.nudge();
        }
      }
    }
  }
}
