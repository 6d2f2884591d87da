// Every page is reached by keyboard and mouse, shows its heading, and fits on the screen of a phone.
import { expect } from './stage.mjs';

const PAGES = ['Overview', 'Nodes', 'Drift', 'Remediation', 'Reviews', 'Images', 'Builds', 'Discovery', 'Audit'];

export async function pages(stage) {
  const page = await stage.signInAsAdmin();
  for (const name of PAGES) {
    await page.getByRole('navigation').getByRole('link', { name, exact: true }).click();
    const heading = page.getByRole('heading', { name, level: 1 });
    await stage.see(heading, `the page ${name}`);
    await stage.gone(page.locator('main .waiting'), `"Reading…" on ${name}`);
    const focused = await page.evaluate(() => document.activeElement?.tagName);
    expect(focused === 'H1' || name === 'Overview', `the focus is on ${focused}, not on the heading, after going to ${name}`);
    await stage.shot(name.toLowerCase());
  }

  await page.goto(new URL('/', page.url()).href);
  await stage.see(page.getByRole('heading', { name: 'Overview', level: 1 }), 'the overview');
  await page.keyboard.press('Tab');
  const first = await page.evaluate(() => document.activeElement?.textContent?.trim());
  expect(first === 'Skip to the page', `the first stop of the Tab key is "${first}", not the skip link`);

  await page.setViewportSize({ width: 360, height: 740 });
  for (const path of ['/', '/nodes', '/drift', '/remediation/plan', '/reviews', '/images', '/builds', '/discovery', '/audit']) {
    await stage.open(path);
    await stage.see(page.locator('main h1'), `${path} on a phone`);
    await stage.gone(page.locator('main .waiting'), `"Reading…" on ${path}`);
    const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    expect(over <= 0, `${path} is ${over} pixels wider than a phone's screen`);
  }
}
