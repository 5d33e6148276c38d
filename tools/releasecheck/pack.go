package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// workModule is a module of go.work that gets released.
type workModule struct {
	dir   string // slash-separated, relative to the root; "." is the root
	path  string
	goMod []byte // as released, see releasedGoMod
}

// workModules reads go.work and the go.mod files it names, except those in skip.
func workModules(root, version string, skip []string) ([]workModule, error) {
	name := filepath.Join(root, "go.work")
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	work, err := modfile.ParseWork(name, data, nil)
	if err != nil {
		return nil, err
	}
	var mods []workModule
	ours := map[string]bool{}
	for _, use := range work.Use {
		dir := path.Clean(use.Path)
		name := filepath.Join(root, filepath.FromSlash(dir), "go.mod")
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		m := workModule{dir: dir, path: modfile.ModulePath(data), goMod: data}
		// Skipped ones count as ours too: a module that requires one of them
		// could not be built by anybody, and releasedGoMod says so.
		ours[m.path] = !slices.Contains(skip, dir)
		if ours[m.path] {
			mods = append(mods, m)
		}
	}
	for i := range mods {
		mods[i].goMod, err = releasedGoMod(mods[i].goMod, version, ours)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path.Join(mods[i].dir, "go.mod"), err)
		}
	}
	return mods, nil
}

// releasedGoMod turns a go.mod of the checkout into the one that is tagged: the
// modules of ours that are released are required at version, and not replaced.
// The values of ours say which of them are released.
func releasedGoMod(data []byte, version string, ours map[string]bool) ([]byte, error) {
	f, err := modfile.Parse("go.mod", data, nil)
	if err != nil {
		return nil, err
	}
	for _, req := range f.Require {
		released, own := ours[req.Mod.Path]
		if !own {
			continue
		}
		if !released {
			return nil, fmt.Errorf("requires %s, which is never released", req.Mod.Path)
		}
		if err := f.AddRequire(req.Mod.Path, version); err != nil {
			return nil, err
		}
	}
	for _, rep := range slices.Clone(f.Replace) {
		if _, own := ours[rep.Old.Path]; !own {
			return nil, fmt.Errorf("replaces %s: users would not get the replacement, and go install refuses the module", rep.Old.Path)
		}
		if err := f.DropReplace(rep.Old.Path, rep.Old.Version); err != nil {
			return nil, err
		}
	}
	f.Cleanup()
	return f.Format()
}

// trackedFiles lists the files git tracks under dir, relative to it.
func trackedFiles(ctx context.Context, dir string) ([]string, error) {
	cmd := exec.CommandContext(ctx, "git", "ls-files", "-z", "--", ".")
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w: %s", err, stderr.String())
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 }), nil
}

// pack writes m at version into the file tree of a module proxy.
func pack(ctx context.Context, root, proxy, version string, m workModule) error {
	dir := filepath.Join(root, filepath.FromSlash(m.dir))
	names, err := trackedFiles(ctx, dir)
	if err != nil {
		return err
	}
	var files []zip.File
	for _, name := range names {
		files = append(files, diskFile{name: name, path: filepath.Join(dir, filepath.FromSlash(name))})
	}
	i := slices.Index(names, "go.mod")
	if i < 0 {
		return fmt.Errorf("%s: go.mod is not tracked by git", m.dir)
	}
	files[i] = memFile{name: "go.mod", data: m.goMod}
	if !slices.Contains(names, "LICENSE") {
		// As the go command does when it packs a module below a repository's root.
		files = append(files, diskFile{name: "LICENSE", path: filepath.Join(root, "LICENSE")})
	}

	escaped, err := module.EscapePath(m.path)
	if err != nil {
		return err
	}
	base := filepath.Join(proxy, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(base, 0o750); err != nil {
		return err
	}
	info, err := json.Marshal(map[string]any{"Version": version, "Time": time.Now().UTC()})
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{
		"list":            []byte(version + "\n"),
		version + ".info": info,
		version + ".mod":  m.goMod,
	} {
		if err := os.WriteFile(filepath.Join(base, name), data, 0o600); err != nil {
			return err
		}
	}
	f, err := os.Create(filepath.Join(base, version+".zip"))
	if err != nil {
		return err
	}
	return errors.Join(zip.Create(f, module.Version{Path: m.path, Version: version}, files), f.Close())
}

// diskFile is a [zip.File] of the checkout.
type diskFile struct{ name, path string }

func (f diskFile) Path() string                 { return f.name }
func (f diskFile) Lstat() (fs.FileInfo, error)  { return os.Lstat(f.path) }
func (f diskFile) Open() (io.ReadCloser, error) { return os.Open(f.path) }

// memFile is a [zip.File] that differs from what the checkout has, and its own
// [fs.FileInfo].
type memFile struct {
	name string
	data []byte
}

func (f memFile) Path() string                 { return f.name }
func (f memFile) Lstat() (fs.FileInfo, error)  { return f, nil }
func (f memFile) Open() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(f.data)), nil }
func (f memFile) Name() string                 { return path.Base(f.name) }
func (f memFile) Size() int64                  { return int64(len(f.data)) }
func (f memFile) Mode() fs.FileMode            { return 0o644 }
func (f memFile) ModTime() time.Time           { return time.Time{} }
func (f memFile) IsDir() bool                  { return false }
func (f memFile) Sys() any                     { return nil }
