// Package replay is what the replays of the incidents have in common: requests at known
// instants, a log of what became of them, a table of figures with what each should be,
// and lines for pictures.
//
// Two runs come to the same figures only if no two events share an instant, since
// goroutines that wake together run in random order. So request number i is i
// nanoseconds late ([Offer]), and all that follows from it is as late.
package replay
