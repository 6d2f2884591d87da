// The screenshots of README and docs, taken from a running demonstration (`cargo xtask demo`):
//
//   PLUMBLINE_URL                http://127.0.0.1:8080
//   PLUMBLINE_ADMIN_PASSWORD     what the demonstration printed
//   PLUMBLINE_SHOTS              the folder to write to (../docs/img)
//   PLUMBLINE_BROWSER            the browser (/usr/bin/chromium)
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { chromium } from 'playwright-core';
import { baseUrl, required } from './stage.mjs';

const folder = process.env.PLUMBLINE_SHOTS ?? '../docs/img';
const WIDE = { width: 1280, height: 860 };
const PHONE = { width: 390, height: 844 };
/** The node that was really installed. */
const NODE = 'node1';

const browser = await chromium.launch({
  executablePath: process.env.PLUMBLINE_BROWSER ?? '/usr/bin/chromium',
  args: process.getuid?.() === 0 ? ['--no-sandbox'] : [],
});

/** Signs in in a fresh window. */
async function signedIn(viewport, colorScheme) {
  const context = await browser.newContext({ viewport, colorScheme, locale: 'en-GB', timezoneId: 'UTC' });
  const page = await context.newPage();
  await page.goto(baseUrl);
  await page.getByLabel('Name').fill('admin');
  await page.getByLabel('Password').fill(required('PLUMBLINE_ADMIN_PASSWORD'));
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('heading', { name: 'Overview', level: 1 }).waitFor();
  return page;
}

/** Waits until nothing is being read any more, and takes the picture of what fits on the screen. */
async function shot(page, name) {
  await page.locator('main h1').waitFor();
  await page.locator('main .waiting').first().waitFor({ state: 'hidden' });
  // Bars and rows that slide in have come to rest by then.
  await page.waitForTimeout(800);
  await page.screenshot({ path: join(folder, `${name}.png`) });
  console.log(`${name}.png`);
}

/** Goes to a page of the navigation. */
async function go(page, name) {
  await page.getByRole('navigation').getByRole('link', { name, exact: true }).click();
  await page.getByRole('heading', { name, level: 1 }).waitFor();
}

/** The page of the group whose key is this. */
async function openGroup(page, key) {
  await page.goto(new URL('/drift', baseUrl).href);
  await page.locator('main').getByRole('link', { name: key }).first().click();
  await page.locator('main h1').waitFor();
}

mkdirSync(folder, { recursive: true });
try {
  const wide = await signedIn(WIDE, 'light');
  await shot(wide, 'overview');
  await go(wide, 'Drift');
  await shot(wide, 'drift');
  await openGroup(wide, '/etc/ssh/sshd_config');
  await shot(wide, 'group');
  await wide.goto(new URL('/remediation/plan', baseUrl).href);
  await shot(wide, 'plan');
  await wide.goto(new URL('/nodes', baseUrl).href);
  await shot(wide, 'nodes');
  await wide.getByRole('link', { name: NODE, exact: true }).first().click();
  await shot(wide, 'node');

  const dark = await signedIn(WIDE, 'dark');
  await shot(dark, 'overview-dark');
  await openGroup(dark, '/etc/ssh/sshd_config');
  await shot(dark, 'group-dark');

  const phone = await signedIn(PHONE, 'light');
  await shot(phone, 'overview-phone');
  await phone.goto(new URL('/drift', baseUrl).href);
  await shot(phone, 'drift-phone');
} finally {
  await browser.close();
}
