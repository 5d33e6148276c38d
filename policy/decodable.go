package policy

// A Decodable is a value of a [Fallback] of any type that takes the type of the call it
// answers, as one that stands in a file does.
type Decodable interface {
	// DecodeAnswer writes the value to what to points to, which is of the type that the
	// call returns. It may be called concurrently, and what it writes is the caller's.
	DecodeAnswer(to any) error
}
