// The API's words, as people read them.
import type { Observation } from '../api/types';

/** Words without their underscores; what has a better name is listed. */
const NAMES: Record<string, string> = {
  waiting_approval: 'waiting for approval',
  sysctl_running: 'sysctl (running)',
  sysctl_persisted: 'sysctl (at next boot)',
  kernel_command_line: 'kernel argument',
  kernel_release: 'kernel release',
  hardening: 'hardening rule',
  no_verb: 'for a person',
  node_hold: 'node held',
  baseline_suspect: 'baseline suspect',
  job_full: 'job full',
  image_revoked: 'image revoked',
  image_refused: 'image refused',
  nothing_to_do: 'nothing to do',
  not_run: 'not tested',
  cpu: 'processors',
  restore_file: 'restore file',
  remove_added_file: 'remove added file',
  set_sysctl: 'set sysctl',
  persist_sysctl: 'restore sysctl setting',
  set_unit: 'set unit state',
  reinstall_package: 'reinstall package',
  remove_package: 'remove package',
};

export function word(name: string): string {
  return NAMES[name] ?? name.replaceAll('_', ' ');
}

export const SEVERITIES = ['critical', 'high', 'medium', 'low', 'info'] as const;
export const NODE_STATES = [
  'listed',
  'discovering',
  'waiting_approval',
  'deploying',
  'installed',
  'deployed',
  'failed',
  'quarantined',
] as const;
export const VERDICTS = ['clean', 'drift', 'incomplete', 'unknown'] as const;
export const STANDINGS = ['open', 'acknowledged', 'waived', 'accepted'] as const;
export const JOB_STATES = ['waiting', 'issued', 'working', 'checking', 'done', 'left', 'failed', 'skipped'] as const;
export const STAGES = ['verify', 'select_disk', 'wipe', 'partition', 'write', 'configure', 'finish'] as const;

/** What a verdict means, in a sentence. */
export const VERDICT_MEANING: Record<string, string> = {
  clean: 'everything was looked at, and nothing differs that nobody allows',
  drift: 'something differs',
  incomplete: 'nothing was found to differ, but not everything was looked at',
  unknown: 'nobody knows: no complete scan, or the agent is silent',
};

export const JOB_MEANING: Record<string, string> = {
  waiting: 'its turn has not come',
  issued: 'given out, not yet fetched by the agent',
  working: 'the agent works on it',
  checking: 'carried out; waits for a fresh scan',
  done: 'a fresh scan proves it',
  left: 'a fresh scan still shows some of it',
  failed: 'not carried out',
  skipped: 'not begun: no longer needed or called off',
};

/** How much a severity weighs; the graver, the more. */
export function severityRank(severity: string): number {
  const at = SEVERITIES.findIndex((name) => name === severity);
  return at < 0 ? 0 : SEVERITIES.length - at;
}

/** Why a place has no value. */
export function observationText(observation: Observation): string {
  const detail = observation.detail ? `: ${observation.detail}` : '';
  switch (observation.observation) {
    case 'denied':
      return `permission was refused${detail}`;
    case 'error':
      return `reading failed${detail}`;
    case 'unstable':
      return `it changed each time while it was read${detail}`;
    case 'timed_out':
      return `it did not answer in time${detail}`;
    case 'not_scanned':
      return `nobody looked${detail}`;
    case 'unsupported':
      return `this machine has no such thing${detail}`;
    default:
      return `${word(observation.observation)}${detail}`;
  }
}

/** What a repair step is about. */
export function verbTarget(verb: Record<string, string>): string {
  return verb['path'] ?? verb['key'] ?? verb['unit'] ?? verb['package'] ?? '';
}
