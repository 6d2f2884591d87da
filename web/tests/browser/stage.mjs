// A browser window for one step: signing in, waiting with a limit and a reason, screenshots, and what went wrong in the
// page itself.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';

/** What a page may take to show something that is there already. */
const SHOW_MS = 15_000;

export const baseUrl = (process.env.PLUMBLINE_URL ?? 'http://127.0.0.1:8080').replace(/\/$/, '');

export class Stage {
  #browser;
  #name;
  #context;
  #page;
  #problems = [];
  #shots = 0;

  constructor(browser, name) {
    this.#browser = browser;
    this.#name = name;
  }

  /** The page; opened at its first use. */
  async page() {
    if (this.#page) return this.#page;
    this.#context = await this.#browser.newContext({
      viewport: { width: 1280, height: 860 },
      // Relative and absolute times must not depend on where the browser is.
      timezoneId: 'America/New_York',
      locale: 'en-US',
    });
    const page = await this.#context.newPage();
    page.setDefaultTimeout(SHOW_MS);
    page.on('pageerror', (error) => this.#problems.push(`error in the page: ${error.message}`));
    page.on('console', (message) => {
      // The browser reports each refused request as well; the page shows those itself.
      if (message.type() === 'error' && !message.text().includes('Failed to load resource')) {
        this.#problems.push(message.text());
      }
    });
    this.#page = page;
    return page;
  }

  /** Fails when the page reported an error, or broke the Content-Security-Policy. */
  assertQuiet() {
    if (this.#problems.length > 0) throw new Error(this.#problems.join('; '));
  }

  async open(path) {
    const page = await this.page();
    await page.goto(baseUrl + path, { waitUntil: 'domcontentloaded' });
    return page;
  }

  /** Signs in by the form and waits for the page behind it. */
  async signIn(name, password) {
    const page = await this.open('/');
    await this.see(page.getByRole('button', { name: 'Sign in' }), 'the sign-in form');
    await page.getByLabel('Name').fill(name);
    await page.getByLabel('Password').fill(password);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await this.see(page.getByRole('heading', { name: 'Overview', level: 1 }), `the overview after signing in as ${name}`);
    return page;
  }

  /** Signs in as the admin of the environment. */
  async signInAsAdmin() {
    return this.signIn('admin', required('PLUMBLINE_ADMIN_PASSWORD'));
  }

  /** Waits until it is on the screen. */
  async see(locator, what, ms = SHOW_MS) {
    try {
      await locator.first().waitFor({ state: 'visible', timeout: ms });
    } catch {
      throw new Error(`waited ${ms / 1_000} s in vain for ${what}; the page shows: ${await this.#seen()}`);
    }
  }

  /** Waits until it is gone. */
  async gone(locator, what, ms = SHOW_MS) {
    try {
      await locator.first().waitFor({ state: 'hidden', timeout: ms });
    } catch {
      throw new Error(`${what} was still there after ${ms / 1_000} s`);
    }
  }

  async shot(name) {
    const folder = process.env.PLUMBLINE_SHOTS;
    if (!folder || !this.#page) return;
    mkdirSync(folder, { recursive: true });
    this.#shots += 1;
    await this.#page.screenshot({ path: join(folder, `${this.#name}-${this.#shots}-${name}.png`), fullPage: true });
  }

  async close() {
    await this.#context?.close();
  }

  async #seen() {
    const text = await this.#page.locator('body').innerText().catch(() => '(nothing)');
    return text.replace(/\s+/g, ' ').slice(0, 600);
  }
}

/** A value that the step cannot do without. */
export function required(name) {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set`);
  return value;
}

/** A limit in seconds, as milliseconds. */
export function limitMs(name, secs) {
  return Number(process.env[name] ?? secs) * 1_000;
}

/** Fails with a sentence. */
export function expect(holds, what) {
  if (!holds) throw new Error(what);
}
