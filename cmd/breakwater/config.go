package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/breakwater-go/breakwater/config"
	"github.com/breakwater-go/breakwater/config/redisconfig"
)

// kinds are the kinds of policies of other modules that a file may have.
func kinds() []config.Kind { return []config.Kind{redisconfig.Kind(nil)} }

// errFound ends a command that has found what it looked for and has printed it.
var errFound = errors.New("found")

// sources are the flags of commands that read settings.
type sources struct {
	Files []string `arg:"" name:"file" help:"Files in the form of breakwater.yaml; later ones win."`
	Set   []string `help:"A setting that wins over the files, such as inventory.breaker.OpenFor=3s." placeholder:"PATH=VALUE" sep:"none"`
}

func (s sources) load(ctx context.Context) (*config.Settings, error) {
	list := []config.Source{&config.Program{Kinds: kinds(), AnyName: true}, config.Environment("BREAKWATER_", nil), config.Flags(s.Set...)}
	for _, f := range s.Files {
		list = append(list, config.File(f))
	}
	settings, err := config.Load(ctx, list...)
	if err == nil && len(settings.Dependencies) == 0 {
		err = fmt.Errorf("%s: there are no dependencies to look at", strings.Join(s.Files, ", "))
	}
	return settings, err
}

type lintCommand struct {
	sources

	Format string `help:"How findings are written: ${enum}." enum:"text,json,sarif" default:"text"`
	All    bool   `help:"Write waived findings, too (text)."`
	FailOn string `help:"The least severity that makes the exit status 1: ${enum}." enum:"note,warning,error" default:"note"`
}

// Help is shown by breakwater lint --help.
func (lintCommand) Help() string {
	return "Exits with 0 when nothing was found, with 1 when something was or a file does not load. " +
		"Rules and waivers are described in docs/reference/lint.md."
}

// Run looks for settings that have led to incidents.
func (c lintCommand) Run(ctx context.Context, out output) error {
	settings, err := c.load(ctx)
	if err != nil {
		return err
	}
	findings := config.Lint(settings)
	switch c.Format {
	case "json":
		err = config.WriteJSON(out.Out, findings)
	case "sarif":
		err = config.WriteSARIF(out.Out, findings)
	default:
		err = config.WriteText(out.Out, findings, c.All)
	}
	if err != nil {
		return err
	}
	for _, f := range findings {
		if !f.Waived && f.Rule.Severity >= severities[c.FailOn] {
			return errFound
		}
	}
	return nil
}

var severities = map[string]config.Severity{"note": config.Note, "warning": config.Warning, "error": config.Fault}

type schemaCommand struct{}

// Run prints the JSON Schema of the file.
func (schemaCommand) Run(out output) error {
	_, err := out.Out.Write(config.Schema(kinds()...))
	return err
}

type configCommand struct {
	Show showCommand `cmd:"" help:"Print the effective settings and where each came from."`
}

type showCommand struct{ sources }

// Run prints the effective settings and their origins.
func (c showCommand) Run(ctx context.Context, out output) error {
	settings, err := c.load(ctx)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out.Out, 0, 4, 2, ' ', 0)
	for _, b := range settings.Budgets {
		if len(b.Values) == 0 {
			fmt.Fprintf(w, "budgets.%s\t(defaults)\t%s\t%s\n", b.Name, b.Origin.Layer, b.Origin)
		}
		for _, v := range b.Values {
			fmt.Fprintf(w, "budgets.%s.%s\t%s\t%s\t%s\n", b.Name, v.Path, v.Text, v.Origin.Layer, v.Origin)
		}
	}
	for _, d := range settings.Dependencies {
		for _, p := range d.Policies {
			if len(p.Values) == 0 {
				fmt.Fprintf(w, "%s.%s\t(defaults)\t%s\t%s\n", d.Name, p.Name, p.Origin.Layer, p.Origin)
			}
			for _, v := range p.Values {
				fmt.Fprintf(w, "%s.%s.%s\t%s\t%s\t%s\n", d.Name, p.Name, v.Path, v.Text, v.Origin.Layer, v.Origin)
			}
		}
	}
	return w.Flush()
}
