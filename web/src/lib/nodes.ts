// Which nodes a table shows, and in which order. What is chosen stands in the address.
import type { LldpListening, Mismatch, Nic, NodeView, PlanLine } from '../api/types';
import { NODE_STATES, VERDICTS } from './words';

export interface NodeFilter {
  text: string;
  state: string;
  drift: string;
  group: string;
  rack: string;
  /** `overdue`, `held`, `not_as_planned`, or empty. */
  only: string;
}

export const SORTS = ['name', 'state', 'drift', 'group', 'rack', 'heard'] as const;
export type NodeSort = (typeof SORTS)[number];

export function filterOf(query: URLSearchParams): NodeFilter {
  const value = (name: string) => query.get(name) ?? '';
  return {
    text: value('q'),
    state: value('state'),
    drift: value('drift'),
    group: value('group'),
    rack: value('rack'),
    only: value('only'),
  };
}

export function sortOf(query: URLSearchParams): { by: NodeSort; descending: boolean } {
  const by = SORTS.find((sort) => sort === query.get('sort')) ?? 'name';
  return { by, descending: query.get('order') === 'down' };
}

/** The name of a node, or what stands for it. */
export function nodeTitle(node: Pick<NodeView, 'id' | 'name' | 'macs'>): string {
  return node.name ?? node.macs[0] ?? node.id;
}

/** A node runs an installed system: only then a verdict about drift means anything. */
export function isInstalled(node: Pick<NodeView, 'state'>): boolean {
  return node.state === 'deployed' || node.state === 'installed';
}

/** Whether somebody has to do something about it: an interface to a BMC is only noted. */
export function isProblem(mismatch: Mismatch): boolean {
  return mismatch.kind !== 'shared_mac';
}

/** What the rack plan says of a node. */
export function planText(plan: PlanLine): string {
  const parts = [
    plan.rack ? `rack ${plan.rack}${plan.unit ? ` unit ${plan.unit}` : ''}` : '',
    plan.serial ? `serial ${plan.serial}` : '',
    plan.mac ? `MAC ${plan.mac}` : '',
    plan.bmc_address ? `BMC ${plan.bmc_address}` : '',
    plan.switch_port ? `switch port ${plan.switch_port}` : '',
  ];
  return parts.filter((part) => part !== '').join(', ');
}

/** The switch port of an interface; what was not heard is never an empty port. */
export function portText(nic: Nic, listening: LldpListening | undefined): string {
  if (nic.lldp) return `${nic.lldp.system_name ?? nic.lldp.chassis}:${nic.lldp.port}`;
  switch (listening?.state) {
    case 'listening':
      return 'not seen yet';
    case 'listened':
      return `not seen in ${listening.secs} s`;
    case 'failed':
      return `could not listen: ${listening.reason}`;
    default:
      return 'not listened for';
  }
}

/** Why it is in its state; of one that waits for approval also what holds it back. */
export function reasonText(node: NodeView): string {
  const isHeldBack = node.burn_in === 'running' || node.burn_in === 'failed';
  if (node.state === 'waiting_approval' && isHeldBack) return `burn-in ${node.burn_in}: ${node.burn_in_reason}`;
  return node.state_reason;
}

export function filterNodes(nodes: NodeView[], filter: NodeFilter): NodeView[] {
  const words = filter.text.toLowerCase().split(/\s+/).filter((word) => word !== '');
  return nodes.filter(
    (node) =>
      (filter.state === '' || node.state === filter.state) &&
      (filter.drift === '' || (node.drift === filter.drift && isInstalled(node))) &&
      (filter.group === '' || node.group === filter.group) &&
      (filter.rack === '' || (node.rack ?? '') === filter.rack) &&
      (filter.only !== 'overdue' || node.overdue) &&
      (filter.only !== 'held' || !!node.hold) &&
      (filter.only !== 'not_as_planned' || node.mismatches.some(isProblem)) &&
      words.every((word) => matches(node, word)),
  );
}

function matches(node: NodeView, word: string): boolean {
  return (
    (node.name?.toLowerCase().includes(word) ?? false) ||
    node.macs.some((mac) => mac.includes(word)) ||
    (node.rack?.toLowerCase().includes(word) ?? false) ||
    node.group.toLowerCase().includes(word) ||
    (node.address?.includes(word) ?? false) ||
    (node.inventory?.dmi.serial?.toLowerCase().includes(word) ?? false) ||
    (node.inventory?.dmi.asset_tag?.toLowerCase().includes(word) ?? false) ||
    reasonText(node).toLowerCase().includes(word) ||
    node.id.startsWith(word)
  );
}

const NATURAL = new Intl.Collator('en', { numeric: true });

/** A copy by name, as people count; machines without a name come last. */
export function byName(nodes: NodeView[]): NodeView[] {
  const keyed = nodes.map((node) => ({ node, unnamed: Number(node.name == null), title: nodeTitle(node) }));
  keyed.sort((a, b) => a.unnamed - b.unnamed || NATURAL.compare(a.title, b.title));
  return keyed.map(({ node }) => node);
}

/** A sorted copy of nodes that come by name: equals stay by name. What has no value comes last, whichever way it goes. */
export function sortNodes(nodes: NodeView[], by: NodeSort, descending: boolean): NodeView[] {
  const sign = descending ? -1 : 1;
  if (by === 'name') {
    if (!descending) return nodes;
    const named = nodes.filter((node) => node.name != null).reverse();
    return [...named, ...nodes.filter((node) => node.name == null)];
  }
  const keyed = nodes.map((node) => ({ node, key: sortKey(node, by) }));
  keyed.sort((a, b) => {
    if (a.key === b.key) return 0;
    if (a.key === '') return 1;
    return b.key === '' ? -1 : sign * compare(a.key, b.key);
  });
  return keyed.map(({ node }) => node);
}

function compare(a: string | number, b: string | number): number {
  return typeof a === 'number' && typeof b === 'number' ? a - b : NATURAL.compare(String(a), String(b));
}

function sortKey(node: NodeView, by: Exclude<NodeSort, 'name'>): string | number {
  switch (by) {
    case 'state':
      return NODE_STATES.findIndex((state) => state === node.state);
    case 'drift':
      return isInstalled(node) ? VERDICTS.findIndex((verdict) => verdict === node.drift) * 1e6 + node.findings : '';
    case 'group':
      return node.group;
    case 'rack':
      return node.rack ?? '';
    case 'heard':
      return node.agent ? Date.parse(node.agent.heartbeat_at) : '';
  }
}

/** Values that occur, in order. */
export function valuesOf(nodes: NodeView[], value: (node: NodeView) => string | null | undefined): string[] {
  const values = new Set(nodes.map(value).filter((text): text is string => !!text));
  return [...values].sort(NATURAL.compare);
}
