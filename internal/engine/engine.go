// Package engine keeps failsafe-go out of public signatures: a pipeline carries
// failsafe-go's policies in the types of this package, which only the module itself
// can name.
package engine

import "github.com/failsafe-go/failsafe-go"

// Foreign is a failsafe-go policy that stands in a pipeline.
type Foreign struct {
	Policy failsafe.Policy[any]
}
