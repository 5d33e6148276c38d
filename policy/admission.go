package policy

import "time"

// An AdmissionSpan is an [AttemptSpan] that is also told what became of its attempt at
// the gates.
type AdmissionSpan interface {
	AttemptSpan

	// Admission is called at most once, before End: when the gates have let the attempt
	// in or refused it, or, of an attempt on a pool, when its caller has it back.
	Admission(a Admission)
}

// Admission is how an attempt passed the gates.
type Admission struct {
	Waited time.Duration // in the queues of gates and of a pool, all together
	Probe  bool          // a breaker let it in to find out how the dependency is
}

// Probe tells the attempt that it is a probe: a breaker that is half-open has let it in
// to find out how the dependency is. It is called from [Gate.Enter].
func (a *Attempt) Probe() { a.probe = true }

// tellAdmission tells a span of its attempt's admission, if it wants to know.
func tellAdmission(span AttemptSpan, ad Admission) {
	if s, ok := span.(AdmissionSpan); ok {
		notify(s.Admission, ad)
	}
}
