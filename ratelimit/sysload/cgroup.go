package sysload

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

// limit returns the number of CPUs that the control group of the process may use, at most
// those the process may run on; 0 if it has no limit.
func (c *CPU) limit() (cpus float64, err error) {
	root := path.Join(c.sys, "fs/cgroup")
	v2 := exists(path.Join(root, "cgroup.controllers"))
	read := quotaV2
	if !v2 {
		root = path.Join(root, "cpu")
		read = quotaV1
	}
	if !exists(root) {
		return 0, nil // there are no control groups
	}
	own, err := c.group(v2)
	if err != nil {
		return 0, err
	}
	// Inside a container the path may be that of the host, which is not seen there.
	dir := path.Join(root, own)
	if !exists(dir) {
		dir = root
	}
	for {
		quota, err := read(dir)
		if err != nil {
			return 0, err
		}
		if quota > 0 && (cpus == 0 || quota < cpus) {
			cpus = quota
		}
		if dir == root {
			break
		}
		dir = path.Dir(dir)
	}
	return min(cpus, c.cpus), nil
}

// group returns the path of the process's control group that limits CPU time.
func (c *CPU) group(v2 bool) (string, error) {
	file := path.Join(c.proc, "self/cgroup")
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("sysload: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		// number:controllers:path
		number, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		controllers, group, found := strings.Cut(rest, ":")
		if found && (v2 && number == "0" || !v2 && slices.Contains(strings.Split(controllers, ","), "cpu")) {
			return path.Clean("/" + group), nil
		}
	}
	return "", fmt.Errorf("sysload: no control group for cpu in %s", file)
}

// quotaV2 returns the number of CPUs that a group of version 2 may use by itself, 0 if it
// has no limit.
func quotaV2(dir string) (float64, error) {
	file := path.Join(dir, "cpu.max")
	text, err := readIfThere(file)
	if err != nil || text == "" {
		return 0, err // the root group has no such file
	}
	quota, period, found := strings.Cut(text, " ")
	if !found {
		return 0, malformed(file, text)
	}
	if quota == "max" {
		return 0, nil
	}
	return share(file, quota, period)
}

// quotaV1 is quotaV2 for version 1.
func quotaV1(dir string) (float64, error) {
	file := path.Join(dir, "cpu.cfs_quota_us")
	quota, err := readIfThere(file)
	if err != nil || quota == "" || quota == "-1" {
		return 0, err
	}
	period, err := readIfThere(path.Join(dir, "cpu.cfs_period_us"))
	if err != nil {
		return 0, err
	}
	return share(file, quota, period)
}

// share returns quota / period.
func share(file, quota, period string) (float64, error) {
	q, err1 := strconv.ParseUint(quota, 10, 63)
	p, err2 := strconv.ParseUint(period, 10, 63)
	if err1 != nil || err2 != nil || q == 0 || p == 0 {
		return 0, malformed(file, quota+" "+period)
	}
	return float64(q) / float64(p), nil
}

func malformed(file, text string) error {
	return fmt.Errorf("sysload: %s: cannot make sense of %q", file, text)
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// readIfThere returns the text of a file without white space around it, nothing when
// there is no such file.
func readIfThere(file string) (string, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("sysload: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
