// Package live runs incidents on real time: over HTTP on loopback, with a dashboard, for who
// wants to see them with a browser and a load tool.
package live
