// Which page: the address bar is the only state. Links stay plain links; a click on one is caught here.
import { match, type Route } from '../lib/routes';

class Router {
  path = $state('/');
  query = $state.raw(new URLSearchParams());
  /** Counts moves to another page, so that the page's heading takes the focus. */
  moves = $state(0);
  route: Route = $derived(match(this.path));

  start(): void {
    this.#read();
    addEventListener('popstate', () => this.#read());
    document.addEventListener('click', (event) => this.#click(event));
  }

  /** Goes to a page. */
  go(href: string): void {
    history.pushState(null, '', href);
    this.#read();
    this.moves += 1;
    scrollTo(0, 0);
  }

  /** Changes the query of this page; empty values are left out. */
  setQuery(values: Record<string, string>): void {
    const query = new URLSearchParams(this.query);
    for (const [name, value] of Object.entries(values)) {
      if (value === '') query.delete(name);
      else query.set(name, value);
    }
    const text = query.toString();
    history.replaceState(null, '', text === '' ? this.path : `${this.path}?${text}`);
    this.query = query;
  }

  #read(): void {
    this.path = location.pathname;
    this.query = new URLSearchParams(location.search);
  }

  #click(event: MouseEvent): void {
    if (event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = (event.target as Element | null)?.closest?.('a[href]');
    if (!(link instanceof HTMLAnchorElement)) return;
    if (link.origin !== location.origin || link.target !== '' || link.hasAttribute('download')) return;
    // A jump inside the page is the browser's.
    if (link.pathname === location.pathname && link.hash !== '') return;
    event.preventDefault();
    this.go(link.pathname + link.search);
  }
}

export const router = new Router();
