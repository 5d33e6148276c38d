// Command dashboards writes the dashboards into the directory it is given.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/breakwater-go/breakwater/otelx/grafana"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "dashboards:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("want the directory to write to, have %d arguments", len(args))
	}
	files, err := grafana.Files()
	if err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(args[0], name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
