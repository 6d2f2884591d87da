// From a node with drift to one finding: the diff of a text file, a waiver, and its withdrawal.
import { expect, required } from './stage.mjs';

export async function drift(stage) {
  if (!process.env.PLUMBLINE_NODE) return 'PLUMBLINE_NODE is not set';
  const node = required('PLUMBLINE_NODE');
  const page = await stage.signInAsAdmin();
  await stage.open(`/nodes/${encodeURIComponent(node)}`);
  await stage.see(page.locator('main h1 ~ .status', { hasText: 'drift' }), `the verdict "drift" on ${node}`);
  const links = page.locator('section[aria-labelledby=findings-h] a[href^="/drift/"]');
  await stage.see(links, `findings on ${node}`);
  await stage.shot('node');

  // The finding with a text to compare is looked for among those of the node.
  const hrefs = await links.evaluateAll((all) => all.map((link) => link.getAttribute('href')));
  let found;
  for (const href of hrefs) {
    await stage.open(href);
    await stage.see(page.getByTestId('variant'), `the variants of ${href}`);
    await stage.gone(page.locator('main .waiting'), `"Reading…" on ${href}`);
    const diff = page.getByRole('region', { name: 'Expected and actual text' });
    if (await diff.first().isVisible()) {
      found = href;
      break;
    }
  }
  expect(found, `none of the ${hrefs.length} findings of ${node} shows a text to compare`);
  const text = await page.getByRole('region', { name: 'Expected and actual text' }).first().innerText();
  expect(/^--- .* \(expected\)$/m.test(text) && /^@@ /m.test(text), `this is no unified diff: ${text.slice(0, 200)}`);
  expect(/^[+-](?![+-]{2} )/m.test(text), `the diff has no added or removed line: ${text.slice(0, 200)}`);
  await stage.shot('diff');

  await waive(stage, page);
  await withdraw(stage, page);
}

async function waive(stage, page) {
  await page.getByRole('button', { name: 'Waive…' }).click();
  const dialog = page.getByRole('dialog');
  await stage.see(dialog, 'the dialog that waives');
  await dialog.getByLabel('Reason').fill('seen in the browser test');
  await dialog.getByLabel('Until, in UTC').fill('2020-01-01T00:00');
  expect(await dialog.getByRole('button', { name: 'Waive' }).isDisabled(), 'a waiver until an instant that is over can be sent');
  await dialog.getByRole('button', { name: '1 day' }).click();
  await stage.shot('waive');
  await dialog.getByRole('button', { name: 'Waive' }).click();
  await stage.gone(dialog, 'the dialog after waiving');
  await stage.see(page.locator('.summary .status', { hasText: 'waived' }), 'the standing "waived"');
  const reviews = page.locator('section[aria-labelledby=reviews-h]');
  await stage.see(reviews.getByText('seen in the browser test'), 'the waiver among the reviews in force');
  await stage.shot('waived');
}

async function withdraw(stage, page) {
  const row = page.locator('section[aria-labelledby=reviews-h] tr', { hasText: 'seen in the browser test' }).first();
  await row.getByRole('button', { name: 'Withdraw…' }).click();
  const dialog = page.getByRole('dialog');
  await stage.see(dialog, 'the dialog that withdraws');
  await dialog.getByRole('button', { name: 'Withdraw' }).click();
  await stage.gone(dialog, 'the dialog after withdrawing');
  await stage.see(page.locator('.summary .status', { hasText: /open|acknowledged/ }), 'the finding as drift again');
}
