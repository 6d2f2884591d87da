// How fast a deployment writes, from what it said last and before.

export interface Sample {
  /** When it said so; milliseconds. */
  at: number;
  bytes: number;
}

/** As far back as the rate looks. */
const SPAN_MS = 10_000;
/** Samples that are kept: one a second. */
const SAMPLES_MAX = 32;

/** The samples with a new one; a deployment that starts over starts over here. */
export function withSample(samples: Sample[], sample: Sample): Sample[] {
  const last = samples.at(-1);
  if (last && sample.at <= last.at) return samples;
  if (last && sample.bytes < last.bytes) return [sample];
  return [...samples.filter((held) => sample.at - held.at <= SPAN_MS), sample].slice(-SAMPLES_MAX);
}

/** Bytes a second; undefined until there is something to compare. */
export function rateOf(samples: Sample[]): number | undefined {
  const first = samples[0];
  const last = samples.at(-1);
  if (!first || !last || last.at - first.at < 500) return undefined;
  return ((last.bytes - first.bytes) * 1_000) / (last.at - first.at);
}
