package dashboard

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// What went wrong with one change is not said of others.
func TestTakeBackSaysWhyOfEach(t *testing.T) {
	t.Parallel()
	why := map[string]string{}
	h := &hand{journal: &journal{}, cfg: Config{Audit: func(e AuditEntry) { why[e.Policy] = e.Why }}}
	ending := func(id uint64, name string, err error) change {
		return change{entry: AuditEntry{ID: id, Policy: name, Action: actSet}, undo: func(string) error { return err }}
	}
	h.takeBack([]change{ending(1, "well", nil), ending(2, "sick", errors.New("no such limit"))}, "its time is over", time.Now())
	assert.Equal(t, map[string]string{"well": "its time is over", "sick": "its time is over (no such limit)"}, why)
}
