// Package top shows a dashboard in a terminal: the dependencies, the worst first, the
// answers to the ten questions, and one dependency in full. It reads the dashboard's JSON
// API and knows nothing that this does not say.
package top
