import { describe, expect, test } from 'vitest';
import type { FindingGroup, NodeView, Plan } from '../api/types';
import { diffLines } from './diff';
import { bytesText, durationText, figuresText, instantOfUtcInput, plural, relativeText, utcInputOf } from './format';
import { filterGroups, groupFilterOf } from './groups';
import { byName, filterNodes, filterOf, sortNodes, planText, portText, reasonText } from './nodes';
import { stepsOf } from './plan';
import { rateOf, withSample, type Sample } from './rate';
import { match, planHref } from './routes';
import { changeWord, shortValue, sideRows, wholeWords } from './sides';
import { rowWindow } from './window';

describe('format', () => {
  test('times and sizes as people say them', () => {
    expect(relativeText(0, 59_000)).toBe('59 s ago');
    expect(relativeText(7_200_000, 0)).toBe('in 2 h');
    expect(relativeText(500, 0)).toBe('now');
    expect(durationText(3 * 86_400_000)).toBe('3 days');
    expect(bytesText(6_812_331_008)).toBe('6.8 GB');
    expect(bytesText(999)).toBe('999 B');
    expect(plural(1, 'node')).toBe('1 node');
    expect(plural(4_000, 'node')).toBe('4,000 nodes');
  });

  test('a date field is read as UTC, whatever zone the browser is in', () => {
    expect(instantOfUtcInput('2026-12-09T08:42')).toBe(Date.UTC(2026, 11, 9, 8, 42));
    expect(utcInputOf(Date.UTC(2026, 11, 9, 8, 42))).toBe('2026-12-09T08:42');
    expect(instantOfUtcInput('')).toBeUndefined();
    expect(instantOfUtcInput('2026-13-40T08:42')).toBeUndefined();
  });
});

test('a diff keeps its signs, and a removed line that looks like a header is a removed line', () => {
  const lines = diffLines('--- a\n+++ b\n@@ -1,2 +1,2 @@\n--- old\n+new\n same\n\\ No newline at end of file\n');
  expect(lines.map((line) => line.kind)).toEqual(['header', 'header', 'hunk', 'removed', 'added', 'context', 'note']);
  expect(lines[3]?.text).toBe('--- old');
});

test('a switch port that was not heard is never an empty one', () => {
  const nic = { name: 'eno1', mac: '3c:ec:ef:00:00:01', link: true, boot: true };
  const lldp = { chassis: '00:1c:73:00:00:01', port: 'Ethernet7/1' };
  expect(portText({ ...nic, lldp: { ...lldp, system_name: 'leaf1' } }, { state: 'listened', secs: 35 })).toBe('leaf1:Ethernet7/1');
  expect(portText({ ...nic, lldp }, undefined)).toBe('00:1c:73:00:00:01:Ethernet7/1');
  expect(portText(nic, { state: 'listened', secs: 35 })).toBe('not seen in 35 s');
  expect(portText(nic, { state: 'listening' })).toBe('not seen yet');
  expect(portText(nic, undefined)).toBe('not listened for');
});

function node(name: string | null, fields: Partial<NodeView> = {}): NodeView {
  const record = {
    id: `id-${name}`,
    name,
    state: 'deployed',
    state_reason: '',
    drift: 'clean',
    group: 'gpu',
    macs: ['3c:ec:ef:00:00:01'],
    mismatches: [],
    findings: 0,
    overdue: false,
  };
  return { ...record, ...fields } as NodeView;
}

test('a plan is told by what it knows', () => {
  expect(planText({ rack: 'r1', unit: 12, serial: 'S1' })).toBe('rack r1 unit 12, serial S1');
  expect(planText({ mac: '3c:ec:ef:00:00:01' })).toBe('MAC 3c:ec:ef:00:00:01');
});

test('a machine that waits says what holds it back', () => {
  const waits = { state: 'waiting_approval', state_reason: 'inventoried', burn_in_reason: 'memory: 3 words differ' } as const;
  expect(reasonText(node(null, { ...waits, burn_in: 'failed' }))).toBe('burn-in failed: memory: 3 words differ');
  expect(reasonText(node(null, { ...waits, burn_in: 'passed' }))).toBe('inventoried');
  expect(reasonText(node(null, { ...waits, state: 'deployed', burn_in: 'failed' }))).toBe('inventoried');
  const figures = [
    { name: 'sda read', value: 2310.44, unit: 'MB/s' },
    { name: 'again', value: 0.204, unit: '%' },
  ];
  expect(figuresText(figures, 'read in 512 places')).toBe('sda read 2310 MB/s · again 0.20 %');
  expect(figuresText(figures, 'read at 2310 MB/s')).toBe('again 0.20 %');
});

describe('nodes', () => {
  const nodes = [
    node('gpu-r1-10', { rack: 'r1' }),
    node('gpu-r1-9', { rack: 'r1', drift: 'drift', findings: 2 }),
    node('gpu-r2-1', { rack: 'r2', drift: 'drift', findings: 12 }),
    node(null, { state: 'waiting_approval', drift: 'unknown' }),
  ];
  const filter = (text: string) => filterNodes(nodes, filterOf(new URLSearchParams(text))).map((one) => one.name);

  test('names sort as people count, unnamed machines come last', () => {
    const sorted = (by: 'name' | 'drift', descending: boolean) =>
      sortNodes(byName(nodes), by, descending).map((one) => one.name);
    expect(sorted('name', false)).toEqual(['gpu-r1-9', 'gpu-r1-10', 'gpu-r2-1', null]);
    expect(sorted('name', true)).toEqual(['gpu-r2-1', 'gpu-r1-10', 'gpu-r1-9', null]);
    expect(sorted('drift', true)).toEqual(['gpu-r2-1', 'gpu-r1-9', 'gpu-r1-10', null]);
  });

  test('the address says which nodes are shown', () => {
    expect(filter('rack=r1&drift=drift')).toEqual(['gpu-r1-9']);
    expect(filter('q=r2')).toEqual(['gpu-r2-1']);
    expect(filter('q=3c:ec')).toHaveLength(4);
  });

  test('a machine that runs no installed system counts under no verdict', () => {
    expect(filter('drift=unknown')).toEqual([]);
  });
});

test('allowed findings are hidden until somebody asks for them', () => {
  const group = (key: string, counts: Partial<FindingGroup>) =>
    ({ key, kind: 'file', severity: 'low', open: 0, acknowledged: 0, waived: 0, accepted: 0, ...counts }) as FindingGroup;
  const groups = [group('/a', { open: 1, waived: 3 }), group('/b', { waived: 2 }), group('/c', { acknowledged: 1 })];
  const keys = (query: string) => filterGroups(groups, groupFilterOf(new URLSearchParams(query))).map((one) => one.key);
  expect(keys('')).toEqual(['/a', '/c']);
  expect(keys('standing=all')).toEqual(['/a', '/b', '/c']);
  expect(keys('standing=waived&q=B')).toEqual(['/b']);
});

test('of ten thousand rows those on the screen are made', () => {
  expect(rowWindow(10_000, 34, -200, 800)).toEqual({ from: 0, to: 38 });
  const middle = rowWindow(10_000, 34, 170_000, 800);
  expect(middle.from).toBe(4_980);
  expect(middle.to - middle.from).toBeLessThan(70);
  expect(rowWindow(10_000, 34, 1e9, 800).to).toBe(10_000);
  expect(rowWindow(3, 34, 0, 800)).toEqual({ from: 0, to: 3 });
  expect(rowWindow(0, 34, 0, 800)).toEqual({ from: 0, to: 0 });
});

test('the rate follows the newest seconds and starts over with the deployment', () => {
  let samples: Sample[] = [];
  expect(rateOf(samples)).toBeUndefined();
  for (let second = 0; second < 20; second += 1) {
    samples = withSample(samples, { at: second * 1_000, bytes: second < 10 ? 0 : (second - 9) * 50_000_000 });
  }
  expect(rateOf(samples)).toBeCloseTo(50_000_000, -3);
  samples = withSample(samples, { at: 20_000, bytes: 10 });
  expect(rateOf(samples)).toBeUndefined();
});

test('addresses name pages', () => {
  expect(match('/')).toEqual({ page: 'overview' });
  expect(match('/nodes/')).toEqual({ page: 'nodes' });
  expect(match('/nodes/3c%3Aec')).toEqual({ page: 'node', node: '3c:ec' });
  expect(match('/remediation/plan')).toEqual({ page: 'plan' });
  expect(match('/remediation/ab')).toEqual({ page: 'run', run: 'ab' });
  expect(match('/nodes/a/b')).toEqual({ page: 'missing' });
  expect(match('/%ff')).toEqual({ page: 'missing' });
  expect(planHref({ findings: ['a', 'b'] })).toBe('/remediation/plan?findings=a%2Cb');
  expect(planHref({})).toBe('/remediation/plan');
});

test('both sides of a finding stand beside one another', () => {
  expect(sideRows({ mode: '0644', size: '1' }, { mode: '0600', size: '1' })).toEqual([
    { name: 'mode', expected: '0644', actual: '0600', differs: true },
    { name: 'size', expected: '1', actual: '1', differs: false },
  ]);
  expect(changeWord(null, {})).toBe('added');
  expect(changeWord({}, null)).toBe('missing');
  expect(shortValue('ab'.repeat(32))).toBe('abababababababab…');
  expect(shortValue('0644')).toBe('0644');
});

test('the same step on many nodes is one line of a plan, the widest first', () => {
  const step = (group: string) => ({ group, variant: 'v', verb: { verb: 'restore_file', path: `/${group}` } });
  const plan = {
    nodes: [
      { node: 'a', steps: [step('y')] },
      { node: 'b', steps: [step('x'), step('y')] },
    ],
  } as unknown as Plan;
  expect(stepsOf(plan).map((one) => [one.group, one.nodes])).toEqual([
    ['y', ['a', 'b']],
    ['x', ['b']],
  ]);
});

test('what was added or is gone is told in a few words', () => {
  expect(wholeWords(undefined, { type: 'file', size: '33', mode: '0644', digest: 'ab', uid: '0' })).toBe('file, 33 bytes, 0644');
  expect(wholeWords({ type: 'symlink', target: '/bin' }, undefined)).toBe('symlink, to /bin');
  expect(wholeWords({ mode: '0644' }, { mode: '0600' })).toBe('');
});
