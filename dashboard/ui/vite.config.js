import { createHash } from "node:crypto";
import { readFileSync, readdirSync } from "node:fs";
import { defineConfig } from "vite";
import preact from "@preact/preset-vite";

// sources writes down which sources the page was built from, so that a test without Node
// can tell that somebody has changed one and not built it.
const sources = {
  name: "sources",
  generateBundle() {
    const files = ["index.html", "package-lock.json", "package.json", "vite.config.js"];
    for (const dir of ["public", "src"]) files.push(...readdirSync(dir).map((f) => dir + "/" + f));
    const lines = files.sort().map((f) => createHash("sha256").update(readFileSync(f)).digest("hex") + "  " + f + "\n");
    this.emitFile({ type: "asset", fileName: "sources.txt", source: lines.join("") });
  },
};

// Fixed names and nothing inlined: the built files are committed, embedded, and served
// under a content-security-policy that allows nothing else.
export default defineConfig({
  base: "./",
  plugins: [preact({ devToolsEnabled: false }), sources],
  build: {
    outDir: "../dist",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    assetsDir: "",
    modulePreload: { polyfill: false },
    cssCodeSplit: false,
    target: "es2022",
    rollupOptions: {
      output: {
        entryFileNames: "app.js",
        chunkFileNames: "[name].js",
        assetFileNames: (a) => (a.names?.[0]?.endsWith(".css") ? "app.css" : "[name][extname]"),
      },
    },
  },
});
