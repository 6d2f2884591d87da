// Which rows of a long table are worth making: those on the screen, and some around them.

export interface RowWindow {
  /** First row. */
  from: number;
  /** Behind the last row. */
  to: number;
}

/** Rows above and below the screen, so that scrolling and the Tab key find something there. */
const MARGIN = 20;

/** `top`: pixels of the table's body that lie above the screen (negative: it begins below the screen's top). */
export function rowWindow(count: number, rowPx: number, top: number, screenPx: number): RowWindow {
  const first = Math.floor(Math.max(0, top) / rowPx);
  const last = Math.ceil(Math.max(0, top + screenPx) / rowPx);
  const from = Math.min(Math.max(0, first - MARGIN), count);
  return { from, to: Math.max(from, Math.min(count, last + MARGIN)) };
}
