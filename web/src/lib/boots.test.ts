import { expect, test } from 'vitest';
import type { BootEvent } from '../api/types';
import { bootsOf } from './boots';

let id = 0;
function event(at: string, kind: string, detail = ''): BootEvent {
  id += 1;
  return { id, at: `2026-11-30T${at}Z`, kind, detail };
}

const INSTALLATION = [
  event('08:00:00', 'dhcp', 'DISCOVER answered with OFFER, loader'),
  event('08:00:01', 'tftp'),
  event('08:00:09', 'dhcp', 'DISCOVER answered with OFFER, script'),
  event('08:00:11', 'script'),
  event('08:00:40', 'claimed'),
  event('08:00:42', 'deployment_started'),
  event('08:02:40', 'installed'),
];
const START = [
  event('08:03:10', 'dhcp', 'DISCOVER answered with OFFER, loader'),
  event('08:03:20', 'script'),
  event('08:04:00', 'agent_up'),
  event('08:04:10', 'scan'),
];

test('a timeline falls into boots, newest first', () => {
  const boots = bootsOf([...INSTALLATION, ...START]);
  expect(boots.map((boot) => [boot.title, boot.events.length])).toEqual([
    ['Start of the installed system', 4],
    ['Installation', 7],
  ]);
});

test('an address that is renewed hours later is no boot', () => {
  const renewal = event('14:00:00', 'dhcp', 'REQUEST answered with ACK, address 10.77.1.9, address');
  const scan = event('14:10:00', 'scan');
  expect(bootsOf([...START, renewal, scan])).toHaveLength(1);
});

test('a machine that starts over without getting anywhere shows each try', () => {
  const tries = [
    event('09:00:00', 'dhcp'),
    event('09:00:02', 'tftp'),
    event('09:20:00', 'dhcp'),
    event('09:20:02', 'script_refused'),
  ];
  const boots = bootsOf(tries);
  expect(boots).toHaveLength(2);
  expect(boots[0]?.failed).toBe(true);
  expect(boots[1]?.failed).toBe(false);
});

test('what people did before the first boot belongs to it', () => {
  const boots = bootsOf([event('07:00:00', 'node_added'), event('07:30:00', 'dhcp'), event('07:30:05', 'script')]);
  expect(boots).toHaveLength(1);
});
