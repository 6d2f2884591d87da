// A wrong password is refused with a reason, the right one opens the overview, a reload keeps the session, signing out
// ends it.
import { expect, required } from './stage.mjs';

export async function signIn(stage) {
  const page = await stage.open('/nodes');
  await stage.see(page.getByRole('button', { name: 'Sign in' }), 'the sign-in form at an address that needs a session');
  await page.getByLabel('Name').fill('admin');
  await page.getByLabel('Password').fill('certainly not the password');
  await page.getByRole('button', { name: 'Sign in' }).click();
  await stage.see(page.getByRole('alert'), 'the reason why a wrong password is refused');
  expect((await page.getByLabel('Password').inputValue()) === '', 'the wrong password stays in the field');
  await stage.shot('refused');

  await page.getByLabel('Password').fill(required('PLUMBLINE_ADMIN_PASSWORD'));
  await page.keyboard.press('Enter');
  await stage.see(page.getByRole('heading', { name: 'Nodes', level: 1 }), 'the page that was asked for before signing in');
  await page.reload();
  await stage.see(page.getByRole('heading', { name: 'Nodes', level: 1 }), 'the page after a reload, without signing in again');

  await page.getByRole('button', { name: 'Sign out' }).click();
  await stage.see(page.getByRole('button', { name: 'Sign in' }), 'the sign-in form after signing out');
  await page.reload();
  await stage.see(page.getByRole('button', { name: 'Sign in' }), 'the sign-in form after a reload');
}
