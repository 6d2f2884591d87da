// Expected and actual, side by side.
import type { Attributes } from '../api/types';

export interface SideRow {
  name: string;
  expected: string | undefined;
  actual: string | undefined;
  differs: boolean;
}

/** One row for each name on either side. */
export function sideRows(expected: Attributes | null | undefined, actual: Attributes | null | undefined): SideRow[] {
  const names = new Set([...Object.keys(expected ?? {}), ...Object.keys(actual ?? {})]);
  return [...names].sort().map((name) => {
    const [old, found] = [expected?.[name], actual?.[name]];
    return { name, expected: old, actual: found, differs: old !== found };
  });
}

/** Of something that is wholly there or wholly not, what tells it best, in a few words; nothing of something changed. */
export function wholeWords(expected: Attributes | null | undefined, actual: Attributes | null | undefined): string {
  const whole = expected && actual ? undefined : (expected ?? actual);
  if (!whole) return '';
  const size = whole.size === undefined ? undefined : `${whole.size} bytes`;
  const target = whole.target === undefined ? undefined : `to ${whole.target}`;
  return [whole.type, target, size, whole.mode, whole.version, whole.state, whole.value].filter((part) => part !== undefined).join(', ');
}

/** In one word what differs. */
export function changeWord(expected: Attributes | null | undefined, actual: Attributes | null | undefined): string {
  if (!expected) return 'added';
  return actual ? 'changed' : 'missing';
}

const DIGEST = /^(hmac-sha256:)?[0-9a-f]{64}$/;

/** A value as it is shown: of a digest the beginning is enough to tell it from another. */
export function shortValue(value: string | undefined): string {
  if (value === undefined) return '–';
  return DIGEST.test(value) ? `${value.slice(0, value.length - 48)}…` : value;
}
