// Image versions by name, and what is different between two of them.
import type { FactDifference, Image, PathDifference } from '../api/types';

/** What an image is for, in the order of lists. */
export const IMAGE_KINDS: Record<string, string> = {
  os: 'operating system',
  deployer: 'deployer',
  agent: 'agent layer',
};

/** All versions of one image, the newest first. */
export interface ImageGroup {
  kind: string;
  name: string;
  versions: Image[];
}

function newestFirst(a: Image, b: Image): number {
  return Date.parse(b.registered_at) - Date.parse(a.registered_at) || b.version.localeCompare(a.version);
}

export function groupImages(images: Image[]): ImageGroup[] {
  const groups = new Map<string, ImageGroup>();
  for (const image of images) {
    const key = `${image.kind} ${image.name}`;
    const group = groups.get(key) ?? { kind: image.kind, name: image.name, versions: [] };
    group.versions.push(image);
    groups.set(key, group);
  }
  const order = Object.keys(IMAGE_KINDS);
  const rank = (kind: string) => (order.indexOf(kind) < 0 ? order.length : order.indexOf(kind));
  for (const group of groups.values()) group.versions.sort(newestFirst);
  return [...groups.values()].sort((a, b) => rank(a.kind) - rank(b.kind) || a.name.localeCompare(b.name));
}

/** The version of the same image that came before this one. */
export function versionBefore(images: Image[], digest: string): Image | undefined {
  const image = images.find((one) => one.digest === digest);
  if (!image) return undefined;
  const versions = images.filter((one) => one.kind === image.kind && one.name === image.name).sort(newestFirst);
  return versions[versions.indexOf(image) + 1];
}

/** A part of a diff: what is different of one kind of thing. */
export interface FactArea {
  title: string;
  rows: FactDifference[];
}

const AREAS: [title: string, areas: string[]][] = [
  ['Kernel', ['kernel', 'module']],
  ['Packages', ['package']],
  ['Units', ['unit']],
  ['Sysctls', ['sysctl']],
  ['Accounts', ['user', 'group']],
  ['Filesystems', ['filesystem']],
];

/** Differences beside the files, by area; areas without any are left out. One that is new here is shown all the same. */
export function factAreas(facts: FactDifference[]): FactArea[] {
  const known = new Set(AREAS.flatMap(([, areas]) => areas));
  const rest = facts.filter((fact) => !known.has(fact.area));
  const areas = AREAS.map(([title, names]) => ({ title, rows: facts.filter((fact) => names.includes(fact.area)) }));
  return [...areas, { title: 'Other', rows: rest }].filter((area) => area.rows.length > 0);
}

export type PathChange = 'added' | 'removed' | 'changed';

export function changeOf(path: PathDifference): PathChange {
  if (!path.before) return 'added';
  return path.now ? 'changed' : 'removed';
}

/** What is different of a path, in words: "content, mode 0644 → 0600". */
export function pathWords(path: PathDifference): string {
  const { before, now } = path;
  if (!before || !now) {
    const state = now ?? before;
    if (!state) return '';
    return state.type === 'symlink' ? `symlink to ${state.target ?? ''}` : `${state.type}, ${state.mode}`;
  }
  const words = path.fields.map((field) => {
    switch (field) {
      case 'type':
        return `${before.type} → ${now.type}`;
      case 'mode':
        return `mode ${before.mode} → ${now.mode}`;
      case 'owner':
        return `owner ${before.uid}:${before.gid} → ${now.uid}:${now.gid}`;
      case 'class':
        return `class ${before.class} → ${now.class}`;
      case 'link':
        return `link ${before.target ?? ''} → ${now.target ?? ''}`;
      default:
        return field;
    }
  });
  return words.join(', ');
}

/** Largest file whose text the server shows, in bytes. */
const TEXT_BYTES_MAX = 64 * 1024;

/** Whether the text of a path may be shown: it is a small file whose content is different, or that only one side has. */
export function mayHaveText(path: PathDifference): boolean {
  const sides = [path.before, path.now].filter((side) => side !== null && side !== undefined);
  const isSmallFile = sides.every((side) => side.type === 'file' && (side.size ?? 0) <= TEXT_BYTES_MAX);
  return isSmallFile && (changeOf(path) !== 'changed' || path.fields.includes('content'));
}
