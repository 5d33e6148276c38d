// Package sysload reads how much of the CPU a process and its neighbours in the same
// container use, for [ratelimit.System]:
//
//	inbound, err := policy.New("inbound", ratelimit.System{CPU: sysload.NewCPU().Read})
//
// It is a module of its own, so that whoever uses package ratelimit alone does not depend
// on what it needs.
package sysload
