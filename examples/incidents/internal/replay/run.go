package replay

import (
	"github.com/breakwater-go/breakwater/internal/vtime"
)

// Run plays scenes one after the other, each on virtual time from its beginning.
func Run(scenes ...func(w *World)) error {
	for _, scene := range scenes {
		var err error
		if stuck := vtime.Run(func() { err = new(World).run(scene) }); stuck != nil && err == nil {
			err = stuck
		}
		if err != nil {
			return err
		}
	}
	return nil
}
