import { describe, expect, test } from 'vitest';
import type { Build, Image, PathDifference } from '../api/types';
import { buildLine, farOf, lastLines, queueOf, tookText } from './builds';
import { changeOf, factAreas, groupImages, mayHaveText, pathWords, versionBefore } from './images';
import { imageDiffHref, match } from './routes';

function image(kind: string, name: string, version: string, registered: string): Image {
  return { digest: `${name}-${version}`, kind, name, version, registered_at: registered } as Image;
}

describe('images', () => {
  const images = [
    image('agent', 'plumbline-agent', '1', '2026-01-01T00:00:00Z'),
    image('os', 'lab', 'a', '2026-01-02T00:00:00Z'),
    image('os', 'gpu', 'c', '2026-01-01T00:00:00Z'),
    // A version with a lock may be named after an earlier time than the one before it.
    image('os', 'lab', 'b', '2026-01-01T00:00:00Z'),
    image('later', 'thing', '1', '2026-01-01T00:00:00Z'),
  ];

  test('versions are grouped by name, the newest first, and what is unknown comes last', () => {
    expect(groupImages(images).map((group) => [group.name, group.versions.map((one) => one.version)])).toEqual([
      ['gpu', ['c']],
      ['lab', ['a', 'b']],
      ['plumbline-agent', ['1']],
      ['thing', ['1']],
    ]);
  });

  test('the version before is of the same image', () => {
    expect(versionBefore(images, 'lab-a')?.version).toBe('b');
    expect(versionBefore(images, 'lab-b')).toBeUndefined();
    expect(versionBefore(images, 'gone')).toBeUndefined();
  });

  test('facts come by area, and none is lost', () => {
    const fact = (area: string, name: string) => ({ area, name, before: null, now: 'x' });
    const areas = factAreas([fact('user', 'a'), fact('package', 'b'), fact('group', 'c'), fact('moon', 'd')]);
    expect(areas.map((area) => [area.title, area.rows.map((row) => row.name)])).toEqual([
      ['Packages', ['b']],
      ['Accounts', ['a', 'c']],
      ['Other', ['d']],
    ]);
  });

  test('a path says what is different of it', () => {
    const file = { type: 'file', mode: '0644', uid: 0, gid: 0, class: 'pinned', size: 3, xattrs: [] };
    const path = (fields: string[], before: object | null, now: object | null) =>
      ({ path: '/x', fields, before, now }) as unknown as PathDifference;
    const changed = path(['content', 'mode', 'owner'], file, { ...file, mode: '0600', uid: 5 });
    expect([changeOf(changed), pathWords(changed)]).toEqual(['changed', 'content, mode 0644 → 0600, owner 0:0 → 5:0']);
    expect(mayHaveText(changed)).toBe(true);
    expect(mayHaveText(path(['mode'], file, file))).toBe(false);
    expect(mayHaveText(path(['content'], file, { ...file, size: 70_000 }))).toBe(false);
    const link = path([], null, { ...file, type: 'symlink', target: '/y' });
    expect([changeOf(link), pathWords(link), mayHaveText(link)]).toEqual(['added', 'symlink to /y', false]);
    expect(changeOf(path([], file, null))).toBe('removed');
  });

  test('a diff has an address, down to a file', () => {
    expect(match('/images/a%40b/diff/c')).toEqual({ page: 'image_diff', before: 'a@b', now: 'c' });
    expect(imageDiffHref('a@b', 'c', '/etc/a b')).toBe('/images/a%40b/diff/c?path=%2Fetc%2Fa+b');
    expect(match('/images/a/difference/c')).toEqual({ page: 'missing' });
    expect(match('/builds')).toEqual({ page: 'builds' });
    expect(match('/builds/x')).toEqual({ page: 'build', build: 'x' });
  });
});

describe('builds', () => {
  function build(fields: Partial<Build>): Build {
    const base = { state: 'running', stage: 'pack', detail: '1 of 9 MB', error: null, cancelled_by: null, count: null };
    return { ...base, ...fields } as Build;
  }

  test('how far a build is, where somebody knows', () => {
    expect(farOf(build({ count: { done: 12, total: 119, unit: 'packages' } }))?.text).toBe('12 of 119 packages');
    expect(farOf(build({ count: { done: 1_500_000, total: 300_000_000, unit: 'bytes' } }))?.text).toBe('1.5 MB of 300 MB');
    expect(farOf(build({ count: { done: 12, total: null, unit: 'packages' } }))).toBeUndefined();
    expect(farOf(build({ state: 'done', count: { done: 1, total: 1, unit: 'packages' } }))).toBeUndefined();
  });

  test('where a build stands, in a line', () => {
    expect(buildLine(build({}))).toBe('pack: 1 of 9 MB');
    expect(buildLine(build({ cancelled_by: 'admin' }))).toBe('is being ended by admin');
    expect(buildLine(build({ state: 'failed', error: 'mmdebstrap failed\nlast words' }))).toBe('mmdebstrap failed');
    const at = { started_at: '2026-01-01T00:00:00Z', finished_at: '2026-01-01T00:02:00Z' };
    expect(tookText(build(at), Date.parse('2027-01-01T00:00:00Z'))).toBe('2 min');
    expect(tookText(build({ started_at: null }), 0)).toBe('');
  });

  test('the queue is told in the order in which it runs', () => {
    const newestFirst = [build({ id: '4', state: 'queued' }), build({ id: '3', state: 'queued' }), build({ id: '2' }), build({ id: '1', state: 'done' })];
    expect(queueOf(newestFirst).map((one) => one.id)).toEqual(['2', '3', '4']);
  });

  test('of a long log the last lines are shown', () => {
    expect(lastLines('a\nb\nc\n', 2)).toEqual({ text: 'b\nc\n', left: 1 });
    expect(lastLines('a\nb\nc\n', 3)).toEqual({ text: 'a\nb\nc\n', left: 0 });
    expect(lastLines('a\nb\nc', 1)).toEqual({ text: 'c', left: 2 });
    expect(lastLines('\n\n\n', 1)).toEqual({ text: '\n', left: 2 });
    expect(lastLines('', 5)).toEqual({ text: '', left: 0 });
  });
});
