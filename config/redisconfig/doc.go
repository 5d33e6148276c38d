// Package redisconfig adds limits that are kept in Redis or Valkey to what a file can say:
//
//	dependencies:
//	  answers:
//	    policies:
//	      - redis:
//	          Client: limits
//	          Limits: [{Rule: sliding_window, Limit: 10, Window: 60s, Keyed: true}]
//	          Settings: {Timeout: 50ms, StandIn: local}
//
// The program has the clients, since addresses and passwords are no policies, and hands them
// over beside the file:
//
//	program := &config.Program{Kinds: []config.Kind{
//		redisconfig.Kind(map[string]redis.UniversalClient{"limits": client}),
//	}}
//	settings, err := config.Load(ctx, config.File("breakwater.yaml"), program)
//
// It is a module of its own, so that whoever has no Redis does not depend on its client.
package redisconfig
