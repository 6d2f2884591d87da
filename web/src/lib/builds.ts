// How far builds are, in words.
import type { Build } from '../api/types';
import { bytesText, countText, durationText } from './format';

/** How far a build is, for a bar: of all there is to do in its stage. */
export interface Far {
  done: number;
  total: number;
  text: string;
}

/** Nothing where nobody knows how much there is to do. */
export function farOf(build: Build): Far | undefined {
  const count = build.count;
  if (build.state !== 'running' || !count || count.total === null || count.total === undefined || count.total <= 0) {
    return undefined;
  }
  const amount = count.unit === 'bytes' ? bytesText : countText;
  const unit = count.unit === 'bytes' ? '' : ` ${count.unit}`;
  return { done: count.done, total: count.total, text: `${amount(count.done)} of ${amount(count.total)}${unit}` };
}

/** How long a build took, or takes. */
export function tookText(build: Build, now: number): string {
  if (!build.started_at) return '';
  const end = build.finished_at ? Date.parse(build.finished_at) : now;
  return durationText(Math.max(0, end - Date.parse(build.started_at)));
}

/** Where a build stands, in one line. */
export function buildLine(build: Build): string {
  switch (build.state) {
    case 'queued':
      return build.detail || 'waits for its turn';
    case 'running':
      return build.cancelled_by ? `is being ended by ${build.cancelled_by}` : [build.stage, build.detail].filter(Boolean).join(': ');
    case 'failed':
      return (build.error ?? '').split('\n')[0] ?? '';
    case 'cancelled':
      return `by ${build.cancelled_by ?? ''}`;
    default:
      return '';
  }
}

/** The queue: what runs, then what waits, the first to run first. */
export function queueOf(builds: Build[]): Build[] {
  const waiting = builds.filter((build) => build.state === 'queued').reverse();
  return [...builds.filter((build) => build.state === 'running'), ...waiting];
}

/** Lines shown of a log that is longer; the last ones, for they are news. */
export const LOG_LINES_SHOWN = 2_000;

/** The last lines of a log, and how many are left out before them. */
export function lastLines(text: string, shown: number): { text: string; left: number } {
  let at = text.length;
  // The newline that ends the text ends no further line.
  if (text.endsWith('\n')) at -= 1;
  for (let lines = 0; lines < shown; lines += 1) {
    if (at < 0) break;
    at = at === 0 ? -1 : text.lastIndexOf('\n', at - 1);
  }
  if (at <= 0) return { text, left: 0 };
  return { text: text.slice(at + 1), left: text.slice(0, at).split('\n').length };
}
