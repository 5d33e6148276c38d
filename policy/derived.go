package policy

// Derived marks a pipeline that was made as it was needed, such as one for each host
// that requests go to, so that their number is not that of a list somebody wrote. Views
// may show the first of them by name and the rest as one: [Snapshot.Derived].
func Derived() Policy {
	return partFunc(func() Part { return Part{Kind: "derived", Derived: true} })
}
