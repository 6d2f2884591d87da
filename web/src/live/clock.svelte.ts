// What time it is, by the server's clock: a tablet with a wrong clock must not say "in 3 hours".

/** Below this the Date header's resolution and the way to here explain it. */
const SKEW_MS_MIN = 5_000;

class Clock {
  /** Milliseconds since 1970, by the server; moves on every second while the page is looked at. */
  now = $state(Date.now());
  #skewMs = 0;

  start(): void {
    const tick = () => {
      if (document.visibilityState === 'visible') this.now = Date.now() + this.#skewMs;
    };
    setInterval(tick, 1_000);
    document.addEventListener('visibilitychange', tick);
  }

  /** Takes the `Date` header of an answer. */
  heard(date: string | null): void {
    const at = date === null ? NaN : Date.parse(date);
    if (Number.isNaN(at)) return;
    const skew = at - Date.now();
    this.#skewMs = Math.abs(skew) < SKEW_MS_MIN ? 0 : skew;
  }
}

export const clock = new Clock();
