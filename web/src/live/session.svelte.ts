// Who is signed in.
import { api, ask, ApiError, whenSignedOut } from '../api/client';
import type { User } from '../api/types';
import { connection } from './connection.svelte';

class Session {
  /** Undefined while nobody knows yet; null: nobody. */
  user = $state.raw<User | null | undefined>(undefined);
  /** The session ended while somebody worked. */
  expired = $state(false);

  get isAdmin(): boolean {
    return this.user?.role === 'admin';
  }

  constructor() {
    whenSignedOut(() => {
      if (this.user) this.expired = true;
      this.#set(null);
    });
  }

  /** Finds out. A server that is away leaves it open. */
  async find(): Promise<void> {
    try {
      this.#set(await ask(api.GET('/api/v1/session')));
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) this.#set(null);
      else throw error;
    }
  }

  /** Throws `ApiError` with the reason. */
  async signIn(name: string, password: string): Promise<void> {
    const { name: known, role } = await ask(api.POST('/api/v1/session', { body: { name, password } }));
    this.expired = false;
    this.#set({ name: known, role });
  }

  async signOut(): Promise<void> {
    await ask(api.DELETE('/api/v1/session'));
    this.expired = false;
    this.#set(null);
  }

  #set(user: User | null): void {
    this.user = user;
    if (user) connection.start();
    else connection.stop();
  }
}

export const session = new Session();
