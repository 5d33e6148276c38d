// Package frameworks shows a limit in front of handlers of chi, gin, echo and fiber, as the
// guide docs/howto/limit-an-http-server.md explains it. Its tests run the same cases through
// each of them. It is a module of its own, so that nobody else downloads four frameworks.
package frameworks
