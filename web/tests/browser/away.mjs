// While the server cannot be reached the page says so and keeps what it shows; afterwards it goes on by itself.
import { expect } from './stage.mjs';

const BANNER = 'The server does not answer; trying again…';

export async function away(stage) {
  const page = await stage.signInAsAdmin();
  await page.getByRole('navigation').getByRole('link', { name: 'Nodes' }).click();
  await stage.gone(page.locator('main .waiting'), '"Reading…" on Nodes');
  await page.context().setOffline(true);
  const search = page.getByRole('searchbox');
  await search.fill('no such node');
  await stage.see(page.getByText('No node matches.'), 'a search without the server in what was read before');
  await search.fill('');
  await page.getByRole('navigation').getByRole('link', { name: 'Images' }).click();
  await stage.see(page.getByText(BANNER), 'the banner that the server does not answer');
  await stage.see(page.getByText('Waiting for the server to show the images…'), 'the page that waits for the server');
  await stage.shot('away');

  await page.context().setOffline(false);
  await stage.gone(page.getByText(BANNER), 'the banner after the server is back');
  await stage.gone(page.locator('main .waiting'), 'the page that waited, after the server is back');
  expect((await page.getByRole('alert').count()) === 0, 'an error is left on the page after the server is back');
}
