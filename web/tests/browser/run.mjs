// The dashboard in a real browser against a real server. What it needs comes by environment:
//
//   PLUMBLINE_URL                the people's listener (http://127.0.0.1:8080)
//   PLUMBLINE_ADMIN_PASSWORD     of the user `admin`
//   PLUMBLINE_VIEWER_PASSWORD    of the user `viewer`; unset: what viewers see is left out
//   PLUMBLINE_NODE               a node with drift, a changed text file among it; unset: drift is left out
//   PLUMBLINE_INSTALLING         MAC, name or id of a node that waits for approval or is being installed; unset: left out
//   PLUMBLINE_INSTALL_SECS       how long an installation may take (900)
//   PLUMBLINE_REMEDIATION_SECS   how long a remediation may take (600)
//   PLUMBLINE_SHOTS              folder for screenshots; unset: none
//   PLUMBLINE_BROWSER            the browser (/usr/bin/chromium)
//   PLUMBLINE_ONLY               names of steps, separated by commas; unset: all
//
// Each step says what it waited for when that did not come. A violation of the Content-Security-Policy, or an error in
// the page, fails the run.
import { chromium } from 'playwright-core';
import { away } from './away.mjs';
import { drift } from './drift.mjs';
import { install } from './install.mjs';
import { pages } from './pages.mjs';
import { remediation } from './remediation.mjs';
import { signIn } from './sign-in.mjs';
import { Stage } from './stage.mjs';
import { viewer } from './viewer.mjs';

const STEPS = { signIn, pages, away, install, drift, remediation, viewer };

const only = (process.env.PLUMBLINE_ONLY ?? '').split(',').filter((name) => name !== '');
const unknown = only.filter((name) => !(name in STEPS));
if (unknown.length > 0) {
  console.error(`PLUMBLINE_ONLY names ${unknown.join(', ')}; there are ${Object.keys(STEPS).join(', ')}`);
  process.exit(2);
}

const browser = await chromium.launch({
  executablePath: process.env.PLUMBLINE_BROWSER ?? '/usr/bin/chromium',
  // Chromium's sandbox refuses to start as root.
  args: process.getuid?.() === 0 ? ['--no-sandbox'] : [],
});
let failed = 0;
try {
  for (const [name, step] of Object.entries(STEPS)) {
    if (only.length > 0 && !only.includes(name)) continue;
    const stage = new Stage(browser, name);
    const begun = Date.now();
    const took = () => `${((Date.now() - begun) / 1_000).toFixed(1)} s`;
    try {
      const left = await step(stage);
      stage.assertQuiet();
      console.log(left ? `SKIP ${name}: ${left}` : `PASS ${name} (${took()})`);
    } catch (error) {
      failed += 1;
      console.error(`FAIL ${name} (${took()}): ${error.message}`);
      await stage.shot('failed');
    } finally {
      await stage.close();
    }
  }
} finally {
  await browser.close();
}
process.exit(failed > 0 ? 1 : 0);
