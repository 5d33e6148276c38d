// Command breakwater shows what the policies do to a call.
//
//	breakwater demo [--for 20s] [--json] [--seed n] [--spans] [--hold] [--metrics-addr host:port]
//	breakwater incident (name | --all) [--json]
//	breakwater incident name --live [--for d] [--addr host:port] [--set key=value]
//	breakwater top [--header-file file] [--once] url
//	breakwater lint [--format text|json|sarif] file...
//	breakwater load --url url (--burst n | --rate r --for d | --ramp a..b --for d | --stages file) ...
//	breakwater size [--rate r] [--latency d] [--quota r] ...
//	breakwater config show file...
//	breakwater schema
//
// It exits with 0, with 1 after an error, with 2 when the command line is wrong, and
// with 130 when it was interrupted.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

// The exit codes.
const (
	exitOK          = 0
	exitError       = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// errInterrupted ends a command that was interrupted and has printed what it had.
var errInterrupted = errors.New("interrupted")

// output is where a command writes: results to Out, everything else to Err.
type output struct {
	Out, Err io.Writer
}

type commands struct {
	Demo     demoCommand     `cmd:"" help:"Watch a dependency fail, behind a plain client and behind pipelines."`
	Incident incidentCommand `cmd:"" help:"Replay an incident, before and after, in virtual time."`
	Top      topCommand      `cmd:"" help:"Watch a dashboard in a terminal."`
	Lint     lintCommand     `cmd:"" help:"Find settings that are valid and have led to incidents."`
	Load     loadCommand     `cmd:"" help:"Send requests at a rate, and count what comes back each second."`
	Size     sizeCommand     `cmd:"" help:"Reckon limits from measured figures."`
	Config   configCommand   `cmd:"" help:"Look at settings."`
	Schema   schemaCommand   `cmd:"" help:"Print the JSON Schema of breakwater.yaml."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the program at once.
	context.AfterFunc(ctx, stop)
	code := run(ctx, os.Args[1:], output{Out: os.Stdout, Err: os.Stderr})
	stop()
	os.Exit(code)
}

// run executes a command line and returns the exit code.
func run(ctx context.Context, args []string, out output) int {
	helped := false
	parser, err := kong.New(new(commands),
		kong.Name("breakwater"),
		kong.Description("Resilience for Go services that call other services."),
		kong.Writers(out.Out, out.Err),
		kong.Exit(func(int) { helped = true }),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(out),
	)
	if err != nil {
		return fail(out, exitError, err)
	}
	command, err := parser.Parse(args)
	switch {
	case helped:
		return exitOK
	case err != nil:
		return fail(out, exitUsage, fmt.Errorf("%w (breakwater --help lists the commands, breakwater COMMAND --help the flags)", err))
	}
	switch err := command.Run(); {
	case errors.Is(err, errInterrupted):
		return exitInterrupted
	case errors.Is(err, errFound):
		return exitError
	case err != nil:
		return fail(out, exitError, err)
	}
	return exitOK
}

// fail reports err.
func fail(out output, code int, err error) int {
	fmt.Fprintf(out.Err, "breakwater: %v\n", err)
	return code
}
