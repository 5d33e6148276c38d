package config

// Layer is a level of the settings: what a higher one says takes the place of what a
// lower one says.
type Layer uint8

// The layers, lowest first.
const (
	LayerBuiltIn     Layer = iota // the profiles and defaults of this module
	LayerDefaults                 // defaults of the program
	LayerFile                     // files, and other stores of the same form
	LayerEnvironment              // environment variables
	LayerFlags                    // the command line
	LayerPinned                   // set by the program, whatever the file says
	LayerHand                     // set by hand, at run time

	numLayers
)

var layerNames = [numLayers]string{"built-in", "defaults", "file", "environment", "flags", "pinned", "hand"}

// String returns the layer's name in lower case.
func (l Layer) String() string {
	if l < numLayers {
		return layerNames[l]
	}
	return "unknown"
}
