package main

import (
	"context"
	"net/http"

	"github.com/breakwater-go/breakwater/cmd/breakwater/internal/top"
)

type topCommand struct {
	URL        string `arg:"" name:"url" help:"Where the dashboard is, such as http://localhost:8080/breakwater/."`
	HeaderFile string `type:"path" placeholder:"FILE" help:"A file with one header a line to send along, such as Authorization: Bearer …. A file, since others can read a command line."`
	Once       bool   `help:"Print what there is now, once, as plain text. So it is where standard output is no terminal."`
}

// Help is the part of the help text below the flags' description.
func (topCommand) Help() string {
	return `Shows what a dashboard shows: every dependency, the worst first, the answers to ten questions, and with Enter one dependency in full. It only looks.`
}

// Run shows the dashboard.
func (c topCommand) Run(ctx context.Context, out output) error {
	var header http.Header
	if c.HeaderFile != "" {
		var err error
		if header, err = top.ReadHeaders(c.HeaderFile); err != nil {
			return err
		}
	}
	client, err := top.NewClient(c.URL, header)
	if err != nil {
		return err
	}
	o, err := client.Overview(ctx) // also to say at once when there is nothing to see
	if err != nil {
		return err
	}
	if c.Once || !isTerminal(out.Out) {
		return top.Print(out.Out, &o)
	}
	return top.NewView(client, nil).Run(ctx)
}
