// Command lines plays the incidents and writes what tools/pictures draws, as JSON.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/breakwater-go/breakwater/examples/incidents"
)

// picture is a file, as tools/pictures has it.
type picture struct {
	Name   string `json:"name"`
	Title  string `json:"title"`
	Charts any    `json:"charts"`
}

func main() {
	if err := run(os.Stdout, incidents.All()); err != nil {
		fmt.Fprintln(os.Stderr, "lines:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, all []incidents.Incident) error {
	var pictures []picture
	for _, i := range all {
		r, err := i.Play()
		if err != nil {
			return fmt.Errorf("%s: %w", i.Name, err)
		}
		pictures = append(pictures, picture{"incident-" + i.Name, i.Story, r.Charts})
	}
	return json.NewEncoder(w).Encode(map[string]any{"pictures": pictures})
}
