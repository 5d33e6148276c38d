package breaker

import "testing"

// byteScript draws the operations of a run from bytes; it ends in zeros.
type byteScript struct{ data []byte }

func (s *byteScript) choose(_ string, n int) int {
	v := 0
	for m := n; m > 1; m /= 256 {
		if len(s.data) == 0 {
			return 0
		}
		v = v<<8 | int(s.data[0])
		s.data = s.data[1:]
	}
	return v % n
}

// Operations from bytes against the model, see [runScript].
func FuzzOperations(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x03\x0a\x05\x01\x04\x00\x09\x01\x02 the rest is calls, outcomes and leaps in time, whatever they may be"))
	f.Add([]byte{2, 9, 9, 1, 0, 0, 1, 0, 11, 0, 0, 11, 5, 0, 1, 0, 11, 0, 0, 11, 5, 0, 1, 0, 0, 0, 0, 11, 5, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		runScript(t, &byteScript{data}, min(len(data)/3, 300))
	})
}
