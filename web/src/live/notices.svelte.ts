// Short words about what was just done, for eyes and for screen readers.

/** Long enough to read a line. */
const SHOWN_MS = 8_000;

class Notices {
  text = $state('');
  #timer: ReturnType<typeof setTimeout> | undefined;

  say(text: string): void {
    clearTimeout(this.#timer);
    this.text = text;
    this.#timer = setTimeout(() => (this.text = ''), SHOWN_MS);
  }
}

export const notices = new Notices();
