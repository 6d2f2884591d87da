import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vitest/config';

export default defineConfig({
  plugins: [svelte()],
  build: {
    target: 'es2022',
    // The server's Content-Security-Policy allows neither inline scripts nor inline styles.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    // What the server embeds: no source maps, and a size that is worth a warning.
    sourcemap: false,
    chunkSizeWarningLimit: 300,
  },
  server: {
    proxy: {
      '/api': { target: process.env.PLUMBLINE_URL ?? 'http://127.0.0.1:8080', changeOrigin: false },
    },
  },
  test: {
    include: ['src/**/*.test.ts'],
  },
});
