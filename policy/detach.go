package policy

// Detaches reports whether the function of a call may still run when the call has returned:
// attempts run on a pool, whose callers may leave, or beside each other ([Pipeline.Hedges]).
// An adapter then gives each attempt data of its own.
func (p *Pipeline) Detaches(c Call) bool {
	if p == nil {
		return false
	}
	pl := p.plan.Load()
	return pl.runner != nil || pl.hedgeable(&c)
}
