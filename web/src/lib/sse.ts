// Server-sent events out of pieces of text (WHATWG HTML, section 9.2.6).
//
// One difference: an event without data is an event here. A notice "reviews have changed" has no id to carry, and the
// browser's own EventSource would drop it.

export interface ServerEvent {
  event: string;
  data: string;
}

/** Longest line that is kept; a server that sends more is not ours. */
const LINE_MAX = 64 * 1024;

export class EventParser {
  #rest = '';
  #event = '';
  #data: string[] = [];

  /** The events that are complete with this piece. */
  push(piece: string): ServerEvent[] {
    const events: ServerEvent[] = [];
    const lines = (this.#rest + piece).split(/\r\n|\n|\r(?!$)/);
    this.#rest = (lines.pop() ?? '').slice(0, LINE_MAX);
    for (const line of lines) {
      if (line !== '') {
        this.#field(line);
      } else if (this.#event !== '' || this.#data.length > 0) {
        events.push({ event: this.#event || 'message', data: this.#data.join('\n') });
        this.#event = '';
        this.#data = [];
      }
    }
    return events;
  }

  #field(line: string): void {
    const colon = line.indexOf(':');
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    // A comment (an empty name) keeps the connection alive and says nothing.
    if (name === 'event') this.#event = value;
    else if (name === 'data') this.#data.push(value);
  }
}
