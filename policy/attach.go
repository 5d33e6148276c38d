package policy

import (
	"fmt"
	"slices"
	"time"
)

// Attachment is something that attempts pass after the gates, as part of what the
// dependency takes for them, and that the pipeline shows beside its policies: the pool of
// connections of a database, whose wait counts as the database's time. It is made by
// [Pipeline.Attach].
type Attachment struct {
	p     *Pipeline
	state Snapshotter
	name  string
}

// Attach shows the state of s in the snapshots of the pipeline, after its policies, until
// [Attachment.Detach]. Its name, that of its snapshot, must be unique in the pipeline, also
// among those of later updates; otherwise the error is a [*ConfigError]. s is asked whenever
// a snapshot is taken. A nil pipeline shows nothing.
func (p *Pipeline) Attach(s Snapshotter) (*Attachment, error) {
	first := s.Snapshot(time.Now())
	at := &Attachment{p: p, state: s, name: first.Name}
	if p == nil {
		return at, nil
	}
	if !isLabel(at.name) {
		return nil, badName(p.name, Part{Kind: first.Kind, Name: at.name})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	taken := p.attachedNames()
	for _, part := range p.plan.Load().parts {
		taken[part.Name] = true
	}
	if _, typed := p.typed[at.name]; typed || taken[at.name] {
		return nil, &ConfigError{
			Dependency: p.name, Policy: first.Kind, Field: "Name", Value: fmt.Sprintf("%q", at.name),
			Want: "the name is used twice in this pipeline; set Name to tell the policies apart",
		}
	}
	p.attached = append(p.attached, at)
	return at, nil
}

// Detach ends what Attach began. Further calls do nothing.
func (at *Attachment) Detach() {
	if at.p == nil {
		return
	}
	at.p.mu.Lock()
	defer at.p.mu.Unlock()
	at.p.attached = slices.DeleteFunc(at.p.attached, func(o *Attachment) bool { return o == at })
}

// Reject completes a refusal of s with the names of the pipeline and of s, and reports it
// to the observers. The refusal is counted in the snapshot of s, by s itself.
func (at *Attachment) Reject(re *RejectedError, a *Attempt) {
	re.Dependency, re.Policy = at.p.Name(), at.name
	if at.p == nil || !at.p.watched() {
		return
	}
	at.p.emit(Event{
		Kind: EventRejected, Time: time.Now(), Policy: at.name, Attempt: a.Number(),
		Reason: re.Reason, RetryAfter: re.RetryAfter, Err: re,
	})
}

// attachedNames returns the names that are taken by attachments. The caller holds p.mu, or
// is the only one who knows p.
func (p *Pipeline) attachedNames() map[string]bool {
	names := make(map[string]bool, len(p.attached))
	for _, at := range p.attached {
		names[at.name] = true
	}
	return names
}

// attachedParts describes what is attached.
func (p *Pipeline) attachedParts(now time.Time) []PolicySnapshot {
	p.mu.Lock()
	attached := slices.Clone(p.attached)
	p.mu.Unlock()
	list := make([]PolicySnapshot, 0, len(attached))
	for _, at := range attached {
		ps := at.state.Snapshot(now)
		ps.Name = at.name
		list = append(list, ps)
	}
	return list
}

// Paused tells the attempt that for d of the time since it began to run the dependency was
// not at work: its caller was, between the statements of a transaction. That time is not
// part of [Outcome.Duration], as a wait in a gate is not. It is for the function of
// [DoAttempt], before it returns; a timeout of the attempt runs on.
func (a *Attempt) Paused(d time.Duration) {
	d = max(d, 0)
	a.start += d
	a.waited += d
}
