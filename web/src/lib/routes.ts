// Addresses of pages.

export type Route =
  | { page: 'overview' | 'nodes' | 'drift' | 'plan' | 'runs' | 'images' | 'builds' | 'discovery' | 'audit' | 'reviews' }
  | { page: 'node'; node: string }
  | { page: 'group'; group: string }
  | { page: 'run'; run: string }
  | { page: 'image'; reference: string }
  | { page: 'image_diff'; before: string; now: string }
  | { page: 'build'; build: string }
  | { page: 'missing' };

/** The page of a path. */
export function match(path: string): Route {
  const parts = path.split('/').filter((part) => part !== '').map(decode);
  const [first, second] = parts;
  if (parts.length === 0) return { page: 'overview' };
  if (parts.length === 1) {
    switch (first) {
      case 'nodes':
      case 'drift':
      case 'images':
      case 'builds':
      case 'discovery':
      case 'audit':
      case 'reviews':
        return { page: first };
      case 'remediation':
        return { page: 'runs' };
    }
  }
  if (parts.length === 2 && second !== undefined) {
    if (first === 'nodes') return { page: 'node', node: second };
    if (first === 'drift') return { page: 'group', group: second };
    if (first === 'images') return { page: 'image', reference: second };
    if (first === 'builds') return { page: 'build', build: second };
    if (first === 'remediation') return second === 'plan' ? { page: 'plan' } : { page: 'run', run: second };
  }
  const [, , third, fourth] = parts;
  if (parts.length === 4 && first === 'images' && third === 'diff' && second !== undefined && fourth !== undefined) {
    return { page: 'image_diff', before: second, now: fourth };
  }
  return { page: 'missing' };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export const nodeHref = (node: string): string => `/nodes/${encodeURIComponent(node)}`;
export const groupHref = (group: string): string => `/drift/${encodeURIComponent(group)}`;
export const runHref = (run: string): string => `/remediation/${encodeURIComponent(run)}`;
export const imageHref = (image: string): string => `/images/${encodeURIComponent(image)}`;

export const buildHref = (build: string): string => `/builds/${encodeURIComponent(build)}`;

/** What is different between two image versions; with a path, opened there. */
export function imageDiffHref(before: string, now: string, path = ''): string {
  const href = `${imageHref(before)}/diff/${encodeURIComponent(now)}`;
  return path === '' ? href : `${href}?${new URLSearchParams({ path })}`;
}

/** The preview of a remediation; nothing named: of everything. */
export function planHref(selection: { findings?: string[]; nodes?: string[]; node_groups?: string[] }): string {
  const query = new URLSearchParams();
  for (const [name, values] of Object.entries(selection)) {
    if (values.length > 0) query.set(name, values.join(','));
  }
  const text = query.toString();
  return text === '' ? '/remediation/plan' : `/remediation/plan?${text}`;
}

/** What makes a page another one: its path, and for a plan what it is of. */
export function planKey(path: string, query: URLSearchParams): string {
  return path === '/remediation/plan' ? `${path}?${query}` : path;
}
