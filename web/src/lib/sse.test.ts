import { expect, test } from 'vitest';
import { EventParser } from './sse';

const STREAM = 'event: all\n\n: \n\nevent: node\ndata: ce77\n\nevent: review\n\ndata: a\ndata: b\n\n';
const EVENTS = [
  { event: 'all', data: '' },
  { event: 'node', data: 'ce77' },
  { event: 'review', data: '' },
  { event: 'message', data: 'a\nb' },
];

test('notices arrive however the network cuts them', () => {
  for (let size = 1; size <= STREAM.length; size += 1) {
    const parser = new EventParser();
    const events = [];
    for (let at = 0; at < STREAM.length; at += size) events.push(...parser.push(STREAM.slice(at, at + size)));
    expect(events).toEqual(EVENTS);
  }
});

test('other line ends are line ends', () => {
  expect(new EventParser().push(STREAM.replaceAll('\n', '\r\n'))).toEqual(EVENTS);
});

test('half a notice is none', () => {
  expect(new EventParser().push('event: run\ndata: 12')).toEqual([]);
});
