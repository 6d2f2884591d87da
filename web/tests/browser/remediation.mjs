// The preview of a remediation of one node, and the run to its end.
import { expect, limitMs, required } from './stage.mjs';

export async function remediation(stage) {
  if (!process.env.PLUMBLINE_NODE) return 'PLUMBLINE_NODE is not set';
  const node = required('PLUMBLINE_NODE');
  const runMs = limitMs('PLUMBLINE_REMEDIATION_SECS', 600);
  const page = await stage.signInAsAdmin();
  await stage.open(`/nodes/${encodeURIComponent(node)}`);
  const preview = page.getByRole('link', { name: 'preview a remediation of this node' });
  await stage.see(preview, `the link to a preview on ${node}`);
  await preview.click();
  await stage.see(page.getByTestId('plan'), 'the preview');
  await stage.shot('preview');

  const begin = page.getByRole('button', { name: /^Repair \d+ findings? on 1 node$/ });
  await stage.see(begin, `something to repair on ${node}`);
  expect(await begin.isEnabled(), 'the remediation cannot begin: another one runs');
  await begin.click();
  await stage.see(page.getByRole('heading', { name: 'Remediation run', level: 1 }), 'the page of the run');
  await stage.shot('run');
  await stage.see(
    page.locator('main h1 ~ .status', { hasText: /finished|stopped/ }),
    'the end of the run without a reload',
    runMs,
  );
  await stage.shot('over');
  const states = await page.locator('section[aria-labelledby=jobs-h] tbody .status').first().innerText();
  expect(states.trim() === 'done', `the job ended as "${states.trim()}": ${await page.getByTestId('run-reason').innerText()}`);
}
