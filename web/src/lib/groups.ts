// Which finding groups a table shows. What is chosen stands in the address.
import type { FindingGroup } from '../api/types';

export interface GroupFilter {
  text: string;
  severity: string;
  kind: string;
  /** Empty: those that somebody must still care about; `all`; or one standing. */
  standing: string;
}

export function groupFilterOf(query: URLSearchParams): GroupFilter {
  const value = (name: string) => query.get(name) ?? '';
  return { text: value('q'), severity: value('severity'), kind: value('kind'), standing: value('standing') };
}

/** On no node is anything left to decide or repair: people allow it everywhere it stands. */
export function isAllowed(group: FindingGroup): boolean {
  return group.open + group.acknowledged === 0;
}

export function filterGroups(groups: FindingGroup[], filter: GroupFilter): FindingGroup[] {
  const words = filter.text.toLowerCase().split(/\s+/).filter((word) => word !== '');
  return groups.filter(
    (group) =>
      (filter.severity === '' || group.severity === filter.severity) &&
      (filter.kind === '' || group.kind === filter.kind) &&
      hasStanding(group, filter.standing) &&
      words.every((word) => group.key.toLowerCase().includes(word) || group.kind.includes(word)),
  );
}

function hasStanding(group: FindingGroup, standing: string): boolean {
  switch (standing) {
    case '':
      return !isAllowed(group);
    case 'open':
      return group.open > 0;
    case 'acknowledged':
      return group.acknowledged > 0;
    case 'waived':
      return group.waived > 0;
    case 'accepted':
      return group.accepted > 0;
    default:
      return true;
  }
}

/** The standings that occur in a group, with their counts. */
export function standingsOf(group: FindingGroup): { name: string; count: number }[] {
  return [
    { name: 'open', count: group.open },
    { name: 'acknowledged', count: group.acknowledged },
    { name: 'waived', count: group.waived },
    { name: 'accepted', count: group.accepted },
  ].filter(({ count }) => count > 0);
}
