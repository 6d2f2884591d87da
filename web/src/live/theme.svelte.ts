// Dark or light: as the system says, unless somebody chose.

export type Theme = 'system' | 'light' | 'dark';

const KEY = 'plumbline-theme';
const ORDER: Theme[] = ['system', 'light', 'dark'];

class ThemeChoice {
  choice = $state<Theme>(kept());

  constructor() {
    apply(this.choice);
  }

  next(): void {
    this.choice = ORDER[(ORDER.indexOf(this.choice) + 1) % ORDER.length] ?? 'system';
    apply(this.choice);
    try {
      localStorage.setItem(KEY, this.choice);
    } catch {
      // Storage is refused: it holds for this page.
    }
  }
}

function kept(): Theme {
  try {
    return ORDER.find((theme) => theme === localStorage.getItem(KEY)) ?? 'system';
  } catch {
    return 'system';
  }
}

function apply(theme: Theme): void {
  if (theme === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

export const theme = new ThemeChoice();
