// Whether the server answers, and its notices of changes.
//
// One stream of server-sent events for the page. It is read by `fetch` and not by EventSource, which hides the status of
// a refusal, drops events that carry no data, and never notices a connection that went dead without a word. The server
// says something every 15 s; silence means that the stream is gone. Every (re)connection begins with the notice `all`,
// so nothing is missed. While the page is hidden the stream is closed: browsers allow six connections to one server, and
// a window full of forgotten tabs would take them all.
import { EventParser } from '../lib/sse';

/** What can change; `all`: anything. */
export type Topic =
  | 'all'
  | 'node'
  | 'event'
  | 'deployment'
  | 'drift'
  | 'review'
  | 'run'
  | 'discovery'
  | 'image'
  | 'build'
  | 'burn_in';

/** Between two attempts to reach a server that is away. */
const RETRY_MS = 2_000;
/** A lost stream is tried again at once, for it may be only the stream. */
const FIRST_RETRY_MS = 250;
/** A connection that breaks and is back within this time is not worth a banner. */
const GRACE_MS = 1_200;
/** Longest silence of a stream that lives. */
const SILENCE_MS = 40_000;
/** A hidden page hears of nothing after this time. */
const HIDDEN_MS = 10_000;
/** Without notices everything is read again this often. */
const POLL_MS = 10_000;

type Listener = (topic: Topic, id: string) => void;

class Connection {
  /** The server does not answer. */
  away = $state(false);
  /** It answers, but tells nothing of changes; pages read everything again now and then. */
  noNotices = $state(false);
  /** When it last answered; milliseconds since 1970 by this machine's clock. */
  answeredAt = $state(Date.now());

  #listeners = new Set<Listener>();
  #stream: AbortController | undefined;
  #wanted = false;
  /** When the stream was lost; undefined while it is there. */
  #lostAt: number | undefined;
  #retry: ReturnType<typeof setTimeout> | undefined;
  #hidden: ReturnType<typeof setTimeout> | undefined;
  #watchesVisibility = false;

  /** Begins to listen: somebody is signed in. */
  start(): void {
    this.#wanted = true;
    this.#open();
    if (this.#watchesVisibility) return;
    this.#watchesVisibility = true;
    document.addEventListener('visibilitychange', () => {
      clearTimeout(this.#hidden);
      if (document.visibilityState === 'hidden') {
        this.#hidden = setTimeout(() => this.#close(), HIDDEN_MS);
      } else if (this.#wanted && this.#stream === undefined) {
        this.#open();
      }
    });
  }

  /** Stops listening: nobody is signed in. */
  stop(): void {
    this.#wanted = false;
    this.#close();
    this.#lostAt = undefined;
    this.noNotices = false;
  }

  /** Hears of changes until the returned function is called. */
  listen(listener: Listener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** A request got an answer. */
  answered(): void {
    this.answeredAt = Date.now();
    if (this.away) {
      this.away = false;
      this.#tell('all', '');
    }
  }

  /** A request got none. */
  noAnswer(): void {
    if (this.away) return;
    this.away = true;
    // The stream may take a while to notice by itself.
    if (this.#wanted) this.#reopen(RETRY_MS);
  }

  #tell(topic: Topic, id: string): void {
    for (const listener of this.#listeners) listener(topic, id);
  }

  #close(): void {
    clearTimeout(this.#retry);
    this.#stream?.abort();
    this.#stream = undefined;
  }

  #reopen(afterMs: number): void {
    this.#close();
    this.#retry = setTimeout(() => {
      if (this.#wanted && document.visibilityState === 'visible') this.#open();
    }, afterMs);
  }

  #open(): void {
    this.#close();
    const stream = new AbortController();
    this.#stream = stream;
    void this.#read(stream);
  }

  async #read(stream: AbortController): Promise<void> {
    const isCurrent = () => this.#stream === stream;
    let silence: ReturnType<typeof setTimeout> | undefined;
    const listenOn = () => {
      clearTimeout(silence);
      silence = setTimeout(() => stream.abort(), SILENCE_MS);
    };
    try {
      listenOn();
      const response = await fetch('/api/v1/stream', { signal: stream.signal, cache: 'no-store' });
      if (!isCurrent()) return;
      if (!response.ok || !response.body) {
        this.#refused(response.status);
        return;
      }
      this.#opened();
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      const parser = new EventParser();
      for (;;) {
        const { done, value } = await reader.read();
        if (done || !isCurrent()) break;
        listenOn();
        this.answeredAt = Date.now();
        for (const { event, data } of parser.push(value)) this.#tell(event as Topic, data);
      }
    } catch {
      // No answer, a broken connection, or silence: the same.
    } finally {
      clearTimeout(silence);
    }
    if (isCurrent()) this.#lost();
  }

  #opened(): void {
    this.#lostAt = undefined;
    this.noNotices = false;
    this.away = false;
    this.answeredAt = Date.now();
  }

  #lost(): void {
    const isFirst = this.#lostAt === undefined;
    const lostAt = (this.#lostAt ??= Date.now());
    this.#reopen(isFirst ? FIRST_RETRY_MS : RETRY_MS);
    if (!isFirst) return;
    setTimeout(() => {
      // Requests that were answered since say that only the stream is gone.
      if (this.#lostAt !== lostAt) return;
      if (this.answeredAt <= lostAt) this.away = true;
      else this.noNotices = true;
    }, GRACE_MS);
  }

  #refused(status: number): void {
    // A proxy in front of the server says in these words that the server is away.
    if (status === 502 || status === 504) {
      this.#lost();
      return;
    }
    this.away = false;
    this.noNotices = true;
    this.answeredAt = Date.now();
    // With status 401 the pages find out that the session is over.
    this.#tell('all', '');
    this.#reopen(POLL_MS);
  }
}

export const connection = new Connection();
