// How the page is built: three files with fixed names, so that the same sources give the same bytes.
import { defineConfig } from "vite";

export default defineConfig({
  base: "./",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "../runtime/static",
    emptyOutDir: true,
    target: "es2023",
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    modulePreload: false,
    reportCompressedSize: true,
    rolldownOptions: {
      output: {
        codeSplitting: false,
        entryFileNames: "ui.js",
        assetFileNames: "ui[extname]",
      },
    },
  },
  server: { proxy: { "/v1": "http://127.0.0.1:8000", "/artifacts": "http://127.0.0.1:8000" } },
  test: { include: ["tests/**/*.test.ts", "tests/**/*.test.tsx"], environment: "node" },
} as Parameters<typeof defineConfig>[0]);
