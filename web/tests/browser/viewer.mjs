// A viewer sees everything, is offered nothing that changes it, and is refused when asking all the same.
import { baseUrl, expect, required } from './stage.mjs';

const ACTIONS = /^(Approve|Acknowledge|Waive|Accept|Withdraw|Hold|Place|Release|Put an image|Arm|Disarm|Stop|Repair)/;

export async function viewer(stage) {
  if (!process.env.PLUMBLINE_VIEWER_PASSWORD) return 'PLUMBLINE_VIEWER_PASSWORD is not set';
  const page = await stage.signIn('viewer', required('PLUMBLINE_VIEWER_PASSWORD'));
  const node = process.env.PLUMBLINE_NODE;
  const paths = ['/', '/nodes', '/drift', '/remediation', '/remediation/plan', '/reviews', '/images', '/discovery', '/audit'];
  if (node) paths.push(`/nodes/${encodeURIComponent(node)}`);
  for (const path of paths) {
    await stage.open(path);
    await stage.see(page.locator('main h1'), path);
    await stage.gone(page.locator('main .waiting'), `"Reading…" on ${path}`);
    const names = await page.locator('main button').allInnerTexts();
    const offered = names.filter((name) => ACTIONS.test(name.trim()));
    expect(offered.length === 0, `${path} offers a viewer: ${offered.join(', ')}`);
  }
  await stage.shot('last');

  const answer = await page.evaluate(async () => {
    const response = await fetch('/api/v1/remediation/runs', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: '{}',
    });
    return { status: response.status, body: await response.json() };
  });
  expect(answer.status === 403, `a viewer's remediation was answered with ${answer.status} at ${baseUrl}`);
  expect(/role/.test(answer.body.error), `the refusal gives no reason: ${JSON.stringify(answer.body)}`);
}
