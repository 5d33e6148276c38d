package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/breakwater-go/breakwater/cmd/breakwater/internal/live"
	"github.com/breakwater-go/breakwater/examples/incidents"
)

// runLive runs an incident on real time.
func (c incidentCommand) runLive(ctx context.Context, out output) error {
	i, err := incidents.Find(c.Name)
	if err != nil {
		return err
	}
	stage, err := live.NewStage(ctx, c.Name)
	if err != nil {
		return err
	}
	if c.Name == "captcha" {
		err = c.captcha(ctx, stage, out)
	} else {
		err = c.playLive(ctx, stage, i, out)
	}
	return errors.Join(err, stage.Close(ctx))
}

// playLive plays one that ends by itself.
func (c incidentCommand) playLive(ctx context.Context, stage *live.Stage, i incidents.Incident, out output) error {
	if c.For != 0 || c.Addr != "" || len(c.Set) > 0 {
		return fmt.Errorf("--for, --addr and --set are for captcha: %s runs once, about a minute, and ends", c.Name)
	}
	fmt.Fprintf(out.Err, "dashboard: %s, about a minute\n", stage.Dashboard)
	r, err := live.Play(ctx, c.Name, stage, func(err error) { fmt.Fprintf(out.Err, "left out: %v\n", err) })
	switch {
	case ctx.Err() != nil:
		return errInterrupted
	case err != nil:
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	return c.show(out, []incidents.Incident{i}, []*incidents.Result{r})
}

func (c incidentCommand) captcha(ctx context.Context, stage *live.Stage, out output) error {
	site, err := live.NewCaptcha(ctx, stage, c.Addr, slog.New(slog.NewTextHandler(out.Err, nil)), c.Set...)
	if err != nil {
		return err
	}
	defer site.Close()
	fmt.Fprintf(out.Err, `dashboard:           %s
as it was:           %s
behind a pipeline:   %s
in another terminal: breakwater load --url %s/captcha --burst 50
`, stage.Dashboard, site.Before, site.After, site.After)
	until := ctx
	if c.For > 0 {
		short, cancel := context.WithTimeout(ctx, c.For)
		defer cancel()
		until = short
	}
	<-until.Done()
	if err := c.tallies(site, out); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	if c.For > 0 && ctx.Err() != nil { // without --for, that is how it ends
		return errInterrupted
	}
	return nil
}

// tallies prints what both processes have answered.
func (c incidentCommand) tallies(site *live.Captcha, out output) error {
	before, after := site.Tallies()
	if c.JSON {
		enc := json.NewEncoder(out.Out)
		enc.SetIndent("", "  ")
		return enc.Encode(map[string]live.Tally{"before": before, "after": after})
	}
	lines := [][]string{{"answers", "before", "after"}}
	for _, l := range []struct {
		name          string
		before, after int64
	}{
		{"200 with a picture", before.Pictures, after.Pictures},
		{"200 without one", before.Empty, after.Empty},
		{"429", before.TooMany, after.TooMany},
		{"other statuses", before.Failed, after.Failed},
		{"healthy endpoint", before.Healthy, after.Healthy},
		{"  clients that left before they had a worker", before.HungUp, after.HungUp},
	} {
		lines = append(lines, []string{l.name, strconv.FormatInt(l.before, 10), strconv.FormatInt(l.after, 10)})
	}
	return incidents.WriteTable(out.Out, lines)
}
