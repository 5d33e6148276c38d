// Package windows holds the figures of docs/explanation/windows.md, as tests that
// print them.
package windows
