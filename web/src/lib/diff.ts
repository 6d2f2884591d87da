// A unified diff, line by line. Signs are kept: colour says nothing that they do not.

export type LineKind = 'header' | 'hunk' | 'added' | 'removed' | 'context' | 'note';

export interface DiffLine {
  kind: LineKind;
  text: string;
}

export function diffLines(unified: string): DiffLine[] {
  const lines = unified.split('\n');
  if (lines.at(-1) === '') lines.pop();
  let inHunk = false;
  return lines.map((text) => {
    if (text.startsWith('@@')) {
      inHunk = true;
      return { kind: 'hunk', text };
    }
    // Inside a hunk "--- x" is a removed line "-- x".
    if (!inHunk) return { kind: 'header', text };
    if (text.startsWith('+')) return { kind: 'added', text };
    if (text.startsWith('-')) return { kind: 'removed', text };
    if (text.startsWith('\\')) return { kind: 'note', text };
    return { kind: 'context', text };
  });
}
