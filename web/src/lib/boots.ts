// A node's timeline, one part for each boot.
//
// Events do not name their boot. A boot asks DHCP first, several times (firmware, loader, deployer), so DHCP begins a
// new boot only after the machine was seen to do something that comes later, or after a while of silence.
import type { BootEvent } from '../api/types';

/** Firmware, loaders and the deployer's start lie closer together than this. */
const SILENCE_MS_MAX = 4 * 60_000;

/** What a machine does before its kernel runs. */
const EARLY = new Set([
  'dhcp', 'dhcp_ignored', 'tftp', 'script', 'script_refused', 'kernel', 'initramfs', 'download_waits', 'discovered',
]);
/** What people and the server do; it belongs to no boot. */
const APART = new Set(['node_added', 'node_renamed', 'deployment_requested', 'released', 'held', 'let_go']);

/** An installed system asks for its address, and again every few hours: that says nothing about a boot. */
function isLease(event: BootEvent): boolean {
  return event.kind === 'dhcp' && event.detail.endsWith(', address');
}

export interface Boot {
  /** Id of its first event. */
  id: number;
  startedAt: number;
  /** Oldest first. */
  events: BootEvent[];
  /** What it was for, as far as its events tell. */
  title: string;
  /** Something in it went wrong. */
  failed: boolean;
}

const FAILED = new Set([
  'deployment_failed',
  'attempt_lost',
  'claim_refused',
  'script_refused',
  'foreign_lease',
  'token_misused',
  'identity_conflict',
  'dhcp_ignored',
]);

/** That an event tells of something that went wrong. */
export function isTrouble(event: BootEvent): boolean {
  return FAILED.has(event.kind);
}

/** Boots, newest first. `events` come oldest first. */
export function bootsOf(events: BootEvent[]): Boot[] {
  const boots: BootEvent[][] = [];
  let sawLater = false;
  let earlyAt = 0;
  for (const event of events) {
    const current = boots.at(-1);
    const at = Date.parse(event.at);
    const isEarly = EARLY.has(event.kind) && !isLease(event);
    const begins = isEarly && (sawLater || at - earlyAt > SILENCE_MS_MAX);
    if (current === undefined || (begins && current.some((held) => !APART.has(held.kind)))) {
      boots.push([event]);
      sawLater = false;
    } else {
      current.push(event);
    }
    if (isEarly) earlyAt = at;
    else if (!APART.has(event.kind) && !isLease(event)) sawLater = true;
  }
  return boots.reverse().map(bootOf);
}

function bootOf(events: BootEvent[]): Boot {
  const first = events[0] as BootEvent;
  const has = (kind: string) => events.some((event) => event.kind === kind);
  return {
    id: first.id,
    startedAt: Date.parse(first.at),
    events,
    title: titleOf(has),
    failed: events.some(isTrouble),
  };
}

function titleOf(has: (kind: string) => boolean): string {
  if (has('installed')) return 'Installation';
  if (has('deployment_failed') || has('attempt_lost')) return 'Installation that failed';
  if (has('deployment_started') || has('stage')) return 'Installation';
  if (has('agent_up') || has('deployed')) return 'Start of the installed system';
  if (has('discovered') || has('inventory') || has('claimed')) return 'Inventory';
  if (has('script') || has('dhcp') || has('tftp') || has('script_refused')) return 'Start from the network';
  return 'Activity';
}

/** What a DHCP or TFTP line is called on the screen. */
export function eventTitle(kind: string): string {
  return EVENT_TITLES[kind] ?? kind.replaceAll('_', ' ');
}

const EVENT_TITLES: Record<string, string> = {
  dhcp: 'DHCP',
  dhcp_ignored: 'DHCP, not answered',
  tftp: 'TFTP',
  script: 'boot script',
  script_refused: 'boot script refused',
  foreign_lease: 'lease of another DHCP server',
  claimed: 'token claimed',
  claim_refused: 'claim refused',
  token_misused: 'token misused',
  agent_up: 'agent up',
};
