// The one way to the server. Answers become data or an `ApiError`; who is signed in and whether the server answers at
// all are told to `connection` and `session` from here, so that no page has to look for it.
import createClient from 'openapi-fetch';
import type { paths } from './schema.gen';
import { clock } from '../live/clock.svelte';
import { connection } from '../live/connection.svelte';

/** Why there is no answer: `status` 0 means that the server did not answer. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
    this.name = 'ApiError';
  }

  get serverGone(): boolean {
    return this.status === 0;
  }
}

const client = createClient<paths>({ baseUrl: '/' });

/** Called with status 401: the session is over. */
let onSignedOut: () => void = () => {};
export function whenSignedOut(act: () => void): void {
  onSignedOut = act;
}

interface Answer<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** The data of an answer. Throws `ApiError`. */
export async function ask<T>(request: Promise<Answer<T>>): Promise<T> {
  let answer: Answer<T>;
  try {
    answer = await request;
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error;
    connection.noAnswer();
    throw new ApiError(0, 'The server does not answer.');
  }
  const { data, error, response } = answer;
  // A proxy in front of the server says in these words that the server is away.
  if (response.status === 502 || response.status === 504) {
    connection.noAnswer();
    throw new ApiError(0, 'The server does not answer.');
  }
  clock.heard(response.headers.get('date'));
  connection.answered();
  if (response.ok) return data as T;
  if (response.status === 401) onSignedOut();
  throw new ApiError(response.status, reasonOf(error) ?? `The server answered with status ${response.status}.`);
}

function reasonOf(body: unknown): string | undefined {
  if (typeof body === 'object' && body !== null && 'error' in body && typeof body.error === 'string') {
    return body.error;
  }
  return undefined;
}

/** What went wrong, for people. */
export function problemText(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

export { client as api };
