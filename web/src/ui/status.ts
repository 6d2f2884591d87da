// Sign and tone of every word that says how something stands.
import type { IconName } from './icons';

export type Tone = 'good' | 'bad' | 'warn' | 'doubt' | 'busy' | 'quiet';

export interface Look {
  icon: IconName;
  tone: Tone;
}

const LOOKS: Record<string, Record<string, Look>> = {
  verdict: {
    clean: { icon: 'check', tone: 'good' },
    drift: { icon: 'differs', tone: 'bad' },
    incomplete: { icon: 'half', tone: 'warn' },
    unknown: { icon: 'question', tone: 'doubt' },
  },
  node: {
    listed: { icon: 'dots', tone: 'quiet' },
    discovering: { icon: 'search', tone: 'busy' },
    waiting_approval: { icon: 'person', tone: 'warn' },
    deploying: { icon: 'run', tone: 'busy' },
    installed: { icon: 'clock', tone: 'busy' },
    deployed: { icon: 'check', tone: 'quiet' },
    failed: { icon: 'cross', tone: 'bad' },
    quarantined: { icon: 'alert', tone: 'bad' },
  },
  severity: {
    critical: { icon: 'alert', tone: 'bad' },
    high: { icon: 'up', tone: 'bad' },
    medium: { icon: 'equal', tone: 'warn' },
    low: { icon: 'down', tone: 'quiet' },
    info: { icon: 'info', tone: 'quiet' },
  },
  standing: {
    open: { icon: 'differs', tone: 'bad' },
    acknowledged: { icon: 'eye', tone: 'warn' },
    waived: { icon: 'clock', tone: 'quiet' },
    accepted: { icon: 'check', tone: 'quiet' },
  },
  job: {
    waiting: { icon: 'dots', tone: 'quiet' },
    issued: { icon: 'clock', tone: 'busy' },
    working: { icon: 'run', tone: 'busy' },
    checking: { icon: 'search', tone: 'busy' },
    done: { icon: 'check', tone: 'good' },
    left: { icon: 'differs', tone: 'warn' },
    failed: { icon: 'cross', tone: 'bad' },
    skipped: { icon: 'skip', tone: 'quiet' },
  },
  run: {
    running: { icon: 'run', tone: 'busy' },
    finished: { icon: 'check', tone: 'quiet' },
    stopped: { icon: 'stop', tone: 'warn' },
  },
  deployment: {
    waiting: { icon: 'clock', tone: 'busy' },
    running: { icon: 'run', tone: 'busy' },
    installed: { icon: 'clock', tone: 'busy' },
    verified: { icon: 'check', tone: 'good' },
    failed: { icon: 'cross', tone: 'bad' },
  },
  step: {
    done: { icon: 'check', tone: 'good' },
    nothing_to_do: { icon: 'check', tone: 'quiet' },
    refused: { icon: 'pause', tone: 'warn' },
    failed: { icon: 'cross', tone: 'bad' },
  },
  burn_in: {
    none: { icon: 'dots', tone: 'quiet' },
    running: { icon: 'run', tone: 'busy' },
    passed: { icon: 'check', tone: 'good' },
    failed: { icon: 'cross', tone: 'bad' },
    waived: { icon: 'person', tone: 'warn' },
  },
  test: {
    waits: { icon: 'dots', tone: 'quiet' },
    running: { icon: 'run', tone: 'busy' },
    passed: { icon: 'check', tone: 'good' },
    failed: { icon: 'cross', tone: 'bad' },
    not_run: { icon: 'question', tone: 'doubt' },
  },
  build: {
    queued: { icon: 'clock', tone: 'quiet' },
    running: { icon: 'run', tone: 'busy' },
    done: { icon: 'check', tone: 'good' },
    failed: { icon: 'cross', tone: 'bad' },
    cancelled: { icon: 'stop', tone: 'quiet' },
  },
  recipe: {
    good: { icon: 'check', tone: 'good' },
    mistake: { icon: 'cross', tone: 'bad' },
  },
  change: {
    opened: { icon: 'differs', tone: 'bad' },
    changed: { icon: 'run', tone: 'warn' },
    closed: { icon: 'check', tone: 'good' },
  },
};

export type StatusOf =
  | 'verdict'
  | 'node'
  | 'severity'
  | 'standing'
  | 'job'
  | 'run'
  | 'deployment'
  | 'step'
  | 'burn_in'
  | 'test'
  | 'build'
  | 'recipe'
  | 'change';

/** A word of a newer server gets a sign that says "unknown". */
export function lookOf(of: StatusOf, value: string): Look {
  return LOOKS[of]?.[value] ?? { icon: 'question', tone: 'doubt' };
}
