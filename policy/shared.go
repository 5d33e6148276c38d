package policy

// SharedSnapshot is the state of a rate limiter whose count is kept in a store that
// several processes share. Counts are from the start.
type SharedSnapshot struct {
	Mode  string // one of SharedModes
	Nodes int    // processes among which the limit is divided while each decides alone

	RoundTrips uint64  // questions to the store that were sent, whatever became of them
	Errors     uint64  // those of them that failed
	Latency    Latency // of those that were answered

	LeaseHits uint64 // calls answered from tokens taken ahead, or given back, without asking
	Leased    int    // tokens that are held for them now
	StoodIn   uint64 // calls that were decided without the store, as it could not be asked
}

// The modes of a limiter that is shared, as in SharedSnapshot Mode and in the events of
// its changes.
const (
	SharedModeShared = "shared" // the store decides
	SharedModeLocal  = "local"  // each process decides alone, about its share
	SharedModeAllow  = "allow"  // the store cannot be asked, and every call is let in
	SharedModeDeny   = "deny"   // the store cannot be asked, and no call is let in
)

// SharedModes lists every mode that a shared limiter can report.
func SharedModes() []string {
	return []string{SharedModeShared, SharedModeLocal, SharedModeAllow, SharedModeDeny}
}
