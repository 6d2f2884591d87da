// A machine that waits is approved, and its installation is followed to its end without a reload.
import { expect, limitMs, required } from './stage.mjs';

export async function install(stage) {
  if (!process.env.PLUMBLINE_INSTALLING) return 'PLUMBLINE_INSTALLING is not set';
  const reference = required('PLUMBLINE_INSTALLING');
  const installMs = limitMs('PLUMBLINE_INSTALL_SECS', 900);
  const page = await stage.signInAsAdmin();
  await stage.open(`/nodes/${encodeURIComponent(reference)}`);
  await stage.see(page.locator('main h1 + .status'), `the state of node ${reference}`);
  await stage.shot('before');

  const approve = page.getByRole('button', { name: 'Approve…' });
  if (await approve.isVisible()) {
    await approve.click();
    const dialog = page.getByRole('dialog');
    await stage.see(dialog, 'the dialog that approves');
    const name = dialog.getByLabel('Name', { exact: false }).first();
    if ((await name.inputValue()) === '') await name.fill(`node-${Date.now().toString(36)}`);
    const image = dialog.getByLabel('Image');
    if ((await image.inputValue()) === '') await image.selectOption({ index: 1 });
    const disk = dialog.getByLabel('Disk to be wiped');
    if (await disk.isVisible()) await disk.selectOption({ index: 1 });
    await stage.shot('approve');
    await dialog.getByRole('button', { name: 'Approve and install' }).click();
    await stage.gone(dialog, 'the dialog after approving');
  }

  const panel = page.getByTestId('deployment');
  await stage.see(panel, 'the installation on the node page', installMs);
  // Stages move on by themselves: more than one is seen, or the first one seen is already the last before the end.
  const stages = new Set();
  const deadline = Date.now() + installMs;
  while (Date.now() < deadline && (await panel.isVisible())) {
    const seen = await panel.getAttribute('data-stage').catch(() => null);
    if (seen && !stages.has(seen)) {
      stages.add(seen);
      await stage.shot(`stage-${seen}`);
    }
    // Returns as soon as the stage changes or the panel goes.
    await page
      .waitForFunction(
        (before) => document.querySelector('[data-testid=deployment]')?.getAttribute('data-stage') !== before,
        seen,
        { timeout: 5_000 },
      )
      .catch(() => undefined);
  }
  expect(!(await panel.isVisible()), `the installation is not over after ${installMs / 1_000} s; stages seen: ${[...stages].join(', ')}`);
  expect(stages.size > 0, 'no stage of the installation was ever shown');
  await stage.see(
    page.locator('main h1 ~ .status', { hasText: /installed|deployed/ }),
    `the state "installed" or "deployed" after the stages ${[...stages].join(', ')}`,
    installMs,
  );
  await stage.see(page.locator('main h1 ~ .status', { hasText: 'deployed' }), 'the first scan of the new system', installMs);
  await stage.see(page.getByTestId('timeline').getByText('Start of the installed system'), 'the start of the new system on the timeline');
  await stage.shot('deployed');
}
