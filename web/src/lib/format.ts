// Numbers, sizes and times for people.

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** "12 s", "5 min", "3 h", "4 days". */
export function durationText(ms: number): string {
  const span = Math.abs(ms);
  if (span < MINUTE) return `${Math.floor(span / SECOND)} s`;
  if (span < HOUR) return `${Math.floor(span / MINUTE)} min`;
  if (span < 2 * DAY) return `${Math.floor(span / HOUR)} h`;
  return `${Math.floor(span / DAY)} days`;
}

/** "5 min ago", "in 3 h", "now". */
export function relativeText(at: number, now: number): string {
  const span = now - at;
  if (Math.abs(span) < SECOND) return 'now';
  return span > 0 ? `${durationText(span)} ago` : `in ${durationText(span)}`;
}

/** "2026-11-30 08:15:02 UTC". */
export function instantText(at: number): string {
  return `${new Date(at).toISOString().slice(0, 19).replace('T', ' ')} UTC`;
}

/** "08:15:02" (UTC). */
export function clockText(at: number): string {
  return new Date(at).toISOString().slice(11, 19);
}

const NUMBER = new Intl.NumberFormat('en-US');

/** With separators for thousands. */
export function countText(count: number): string {
  return NUMBER.format(count);
}

/** "1 node", "4,000 nodes". */
export function plural(count: number, one: string, many = `${one}s`): string {
  return `${countText(count)} ${count === 1 ? one : many}`;
}

/** Decimal units, as disks and links are sold: "6.8 GB". */
export function bytesText(bytes: number): string {
  return scaled(bytes, 1_000, ['B', 'kB', 'MB', 'GB', 'TB', 'PB']);
}

/** Binary units, as memory is sold: "1,510 GiB". */
export function memoryText(bytes: number): string {
  return scaled(bytes, 1_024, ['B', 'KiB', 'MiB', 'GiB', 'TiB']);
}

function scaled(bytes: number, base: number, units: string[]): string {
  let value = bytes;
  let unit = 0;
  while (value >= base && unit < units.length - 1) {
    value /= base;
    unit += 1;
  }
  const digits = unit === 0 || value >= 100 ? 0 : 1;
  return `${value.toFixed(digits)} ${units[unit]}`;
}

/** "400 Gb/s". */
export function speedText(mbps: number): string {
  return mbps >= 1_000 ? `${mbps / 1_000} Gb/s` : `${mbps} Mb/s`;
}

/** What was measured: "nvme0n1 read 2310 MB/s"; what the sentence beside it says already is left out. */
export function figuresText(figures: { name: string; value: number; unit: string }[], said: string): string {
  const number = (value: number) => (Math.abs(value) >= 10 || Number.isInteger(value) ? value.toFixed(0) : value.toFixed(2));
  const news = figures.filter((figure) => !said.includes(number(figure.value)));
  return news.map((figure) => `${figure.name} ${number(figure.value)} ${figure.unit}`).join(' · ');
}

/** The first 12 digits of a digest. */
export function shortDigest(digest: string): string {
  return digest.slice(0, 12);
}

/** The instant an `<input type="datetime-local">` means when it is read as UTC; undefined when it holds none. */
export function instantOfUtcInput(value: string): number | undefined {
  if (!/^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?$/.test(value)) return undefined;
  const at = Date.parse(`${value}Z`);
  return Number.isNaN(at) ? undefined : at;
}

/** The value of an `<input type="datetime-local">` that is read as UTC. */
export function utcInputOf(at: number): string {
  return new Date(at).toISOString().slice(0, 16);
}
