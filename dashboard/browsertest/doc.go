// Package browsertest looks at the dashboard with a real browser: Debian's Chromium,
// driven headless. It has no code of its own, and is a module of its own so that nobody
// else's has to know the driver.
//
// Its tests are left out where there is no /usr/bin/chromium. With SCREENSHOTS set to a
// directory they also write the pictures of the documentation there (make screenshots).
//
// testdata/axe.min.js is axe-core 4.14.1 (Mozilla Public License 2.0, see its first
// lines), as the package of that version on npm has it.
package browsertest
