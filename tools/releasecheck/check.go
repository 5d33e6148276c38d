package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
)

// check is one try of a release.
type check struct {
	out      io.Writer
	root     string   // of the checkout
	tmp      string   // scratch space
	version  string   // what the modules are packed as
	skip     []string // directories of modules that are not released
	consumer string   // source of the user's program
	banned   []string // import paths, with all below them, that it must not compile

	env []string // of the user's go commands
}

func (c *check) run(ctx context.Context) error {
	mods, err := workModules(c.root, c.version, c.skip)
	if err != nil {
		return err
	}
	var paths []string
	proxy := filepath.Join(c.tmp, "proxy")
	for _, m := range mods {
		if err := pack(ctx, c.root, proxy, c.version, m); err != nil {
			return fmt.Errorf("pack %s: %w", m.path, err)
		}
		paths = append(paths, m.path)
		fmt.Fprintf(c.out, "packed     %s@%s\n", m.path, c.version)
	}
	if err := c.userEnv(ctx, proxy, paths); err != nil {
		return err
	}
	if err := c.checkConsumer(ctx, paths[0]); err != nil {
		return fmt.Errorf("consumer: %w", err)
	}
	for _, m := range mods {
		if err := c.checkModule(ctx, m); err != nil {
			return fmt.Errorf("%s: %w", m.path, err)
		}
	}
	fmt.Fprintln(c.out, "release-check: passed")
	return nil
}

// userEnv makes the environment of somebody with an empty module cache, to whom
// our modules come from proxy and all others from where they usually come.
func (c *check) userEnv(ctx context.Context, proxy string, ours []string) error {
	ambient, err := c.command(ctx, c.root, os.Environ(), "go", "env", "GOPROXY", "GONOSUMDB", "GOMODCACHE")
	if err != nil {
		return err
	}
	lines := strings.Split(ambient, "\n")
	if len(lines) < 3 {
		return fmt.Errorf("go env printed %q", ambient)
	}
	// What this machine already has need not cross the network once more.
	sources := []string{"file://" + filepath.ToSlash(proxy)}
	if cache := filepath.Join(lines[2], "cache", "download"); isDir(cache) {
		sources = append(sources, "file://"+filepath.ToSlash(cache))
	}
	// Not GOPRIVATE: that would bypass the proxy as well.
	noSum := strings.Join(ours, ",")
	if lines[1] != "" {
		noSum += "," + lines[1]
	}
	c.env = append(
		os.Environ(),
		"GOWORK=off",
		"GOFLAGS=-modcacherw -mod=mod -buildvcs=false",
		"GOPROXY="+strings.Join(append(sources, lines[0]), ","),
		"GONOSUMDB="+noSum,
		"GONOPROXY=none",
		"GOMODCACHE="+c.modCache(),
		"GOBIN="+filepath.Join(c.tmp, "bin"),
	)
	return nil
}

func (c *check) modCache() string { return filepath.Join(c.tmp, "modcache") }

// checkConsumer builds and runs the user's program, and looks at what it costs.
func (c *check) checkConsumer(ctx context.Context, rootModule string) error {
	dir, err := c.newModule("consumer", rootModule)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(c.consumer), 0o600); err != nil {
		return err
	}
	said, err := c.command(ctx, dir, c.env, "go", "run", ".")
	if err != nil {
		return err
	}
	fmt.Fprintf(c.out, "ran        %s\n", strings.TrimSpace(said))

	list, err := c.command(ctx, dir, c.env, "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".")
	if err != nil {
		return err
	}
	deps := strings.Fields(list)
	fmt.Fprintf(c.out, "compiled   %d packages outside the standard library\n", len(deps))
	var errs []error
	for _, dep := range deps {
		for _, banned := range c.banned {
			if dep == banned || strings.HasPrefix(dep, banned+"/") {
				errs = append(errs, fmt.Errorf("compiles %s", dep))
			}
		}
	}
	return errors.Join(append(errs, c.listDownloads())...)
}

// listDownloads prints what the module cache got so far.
func (c *check) listDownloads() error {
	download := filepath.Join(c.modCache(), "cache", "download")
	var mods int
	err := filepath.WalkDir(download, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch filepath.Ext(name) {
		case ".mod":
			mods++
		case ".zip":
			rel, err := filepath.Rel(download, name)
			if err != nil {
				return err
			}
			escaped, file, _ := strings.Cut(filepath.ToSlash(rel), "/@v/")
			mod, err := module.UnescapePath(escaped)
			if err != nil {
				return err
			}
			fmt.Fprintf(c.out, "downloaded %s@%s, %.1f kB\n", mod, strings.TrimSuffix(file, ".zip"), float64(info.Size())/1000)
		}
		return nil
	})
	fmt.Fprintf(c.out, "downloaded %d go.mod files\n", mods)
	return err
}

// checkModule installs the commands of m, or builds its packages if it is a
// library, as somebody who depends on m alone.
func (c *check) checkModule(ctx context.Context, m workModule) error {
	dir, err := c.newModule(path.Join("only", m.dir), m.path)
	if err != nil {
		return err
	}
	if _, err := c.command(ctx, dir, c.env, "go", "build", m.path+"/..."); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "built      %s/...\n", m.path)

	list, err := c.command(ctx, dir, c.env, "go", "list", "-f", `{{if eq .Name "main"}}{{.ImportPath}}{{end}}`, m.path+"/...")
	if err != nil {
		return err
	}
	for pkg := range strings.FieldsSeq(list) {
		if strings.Contains(strings.TrimPrefix(pkg, m.path)+"/", "/internal/") {
			continue
		}
		if _, err := c.command(ctx, c.tmp, c.env, "go", "install", pkg+"@"+c.version); err != nil {
			return err
		}
		fmt.Fprintf(c.out, "installed  %s@%s\n", pkg, c.version)
	}
	return nil
}

// newModule makes a module that requires only mod.
func (c *check) newModule(name, mod string) (string, error) {
	dir := filepath.Join(c.tmp, filepath.FromSlash(name))
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", err
	}
	var f modfile.File
	err := errors.Join(
		f.AddModuleStmt("example.com/consumer"),
		f.AddGoStmt("1.26.0"),
		f.AddRequire(mod, c.version),
	)
	if err != nil {
		return "", err
	}
	data, err := f.Format()
	if err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, "go.mod"), data, 0o600)
}

// command runs a command and returns its standard output.
func (c *check) command(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = env
	var stdout, stderr bytes.Buffer
	cmd.Stdout = &stdout
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, stdout.String(), stderr.String())
	}
	return stdout.String(), nil
}

func isDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}
