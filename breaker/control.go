package breaker

import "github.com/breakwater-go/breakwater/policy"

var (
	_ policy.Commander      = (*Breaker)(nil)
	_ policy.KeyedCommander = (*KeyedBreaker)(nil)
)

// Commander implements [policy.KeyedCommander]: it returns the breaker of a key that is
// remembered. Unlike [KeyedBreaker.Get] it makes none: a command for a key that was
// mistyped must not look as if it had done something.
func (k *KeyedBreaker) Commander(key string) (policy.Commander, bool) {
	e := k.table.find(key)
	if e == nil {
		return nil, false
	}
	return e.b, true
}
