package config

import (
	"context"
	"slices"
	"time"
)

// expireAgain is after how long it is tried again to end what could not be ended.
const expireAgain = time.Minute

// expire puts an end to settings made by hand whose time is over. One that the others
// cannot do without, such as a Max below a Min that was set since, stays, as it is in force
// in any case, and is tried again.
func (m *Manager) expire() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	now := time.Now()
	var over []uint64
	for _, h := range m.hand {
		if !h.until.IsZero() && !now.Before(h.until) && !slices.Contains(over, h.id) {
			over = append(over, h.id)
		}
	}
	wait := time.Duration(0)
	if len(over) > 0 && m.endLocked(over...) != nil {
		for _, id := range over { // one must not keep the others
			if len(over) == 1 || m.endLocked(id) != nil {
				wait = expireAgain
			}
		}
	}
	m.expireLaterLocked(wait)
}

// endLocked ends changes by hand whose time is over; on an error, which is logged, they go on.
func (m *Manager) endLocked(ids ...uint64) error {
	before := m.hand
	m.hand = slices.DeleteFunc(slices.Clone(m.hand), func(h byHand) bool { return slices.Contains(ids, h.id) })
	_, err := m.adjustLocked(context.Background(), "expired", "", m.versions[len(m.versions)-1].contents)
	if err != nil {
		m.hand = before
	}
	return err
}

// expireLaterLocked has expire look when the next setting made by hand ends, though not
// before the given time.
func (m *Manager) expireLaterLocked(wait time.Duration) {
	var first time.Time
	for _, h := range m.hand {
		if !h.until.IsZero() && (first.IsZero() || h.until.Before(first)) {
			first = h.until
		}
	}
	if first.IsZero() || m.closed {
		return
	}
	wait = max(wait, time.Until(first))
	if m.expiry == nil {
		m.expiry = time.AfterFunc(wait, m.expire)
		return
	}
	m.expiry.Reset(wait)
}
