package sysload

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tree is a file system with the files of a machine.
type tree struct {
	t   *testing.T
	dir string
}

func newTree(t *testing.T, files map[string]string) tree {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("control groups are Linux's")
	}
	f := tree{t, t.TempDir()}
	f.write(files)
	return f
}

func (f tree) write(files map[string]string) {
	f.t.Helper()
	for name, text := range files {
		file := filepath.Join(f.dir, name)
		require.NoError(f.t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(f.t, os.WriteFile(file, []byte(text), 0o600))
	}
}

func (f tree) cpu() *CPU {
	return newCPU(filepath.Join(f.dir, "proc"), filepath.Join(f.dir, "sys"), 4)
}

func TestReadGroupV2(t *testing.T) {
	t.Parallel()
	f := newTree(t, map[string]string{
		"proc/self/cgroup":                     "0::/pod/app\n",
		"sys/fs/cgroup/cgroup.controllers":     "cpu memory\n",
		"sys/fs/cgroup/cpu.stat":               "usage_usec 999000000\n",
		"sys/fs/cgroup/pod/cpu.max":            "200000 100000\n",
		"sys/fs/cgroup/pod/cpu.stat":           "usage_usec 555000000\n",
		"sys/fs/cgroup/pod/app/cpu.max":        "50000 100000\n",
		"sys/fs/cgroup/pod/app/cpu.stat":       "usage_usec 1000000\nuser_usec 1\nsystem_usec 1\nnr_throttled 5\n",
		"sys/fs/cgroup/pod/app/irrelevant.max": "1 1\n",
	})
	synctest.Test(t, func(t *testing.T) {
		c := f.cpu()
		read := func(usage string) float64 {
			t.Helper()
			f.write(map[string]string{"sys/fs/cgroup/pod/app/cpu.stat": "usage_usec " + usage + "\n"})
			share, err := c.Read()
			require.NoError(t, err)
			return share
		}
		time.Sleep(2 * time.Second)
		assert.InDelta(t, 0.4, read("1400000"), 1e-9, "0.4 s of the 1 s that two seconds at half a CPU are")
		assert.InDelta(t, 0.4, read("1500000"), 1e-9, "no time has passed")
		time.Sleep(time.Second)
		assert.InDelta(t, 1, read("2000000"), 1e-9)
		time.Sleep(time.Second)
		assert.Zero(t, read("2000000"))
		time.Sleep(time.Second)
		assert.Zero(t, read("1000000"), "it was moved to another group")

		// Another limit, which is above that of the group around it.
		f.write(map[string]string{"sys/fs/cgroup/pod/app/cpu.max": "400000 100000\n"})
		time.Sleep(time.Second)
		assert.InDelta(t, 0.5, read("2000000"), 1e-9, "of the pod's two")
		f.write(map[string]string{"sys/fs/cgroup/pod/cpu.max": "max 100000\n"})
		time.Sleep(time.Second)
		assert.InDelta(t, 0.25, read("3000000"), 1e-9)
		f.write(map[string]string{"sys/fs/cgroup/pod/app/cpu.max": "6400000 100000\n"})
		time.Sleep(time.Second)
		assert.InDelta(t, 0.25, read("4000000"), 1e-9, "there are no more than four processors")

		// Without a limit it is the machine that counts.
		f.write(map[string]string{"sys/fs/cgroup/pod/app/cpu.max": "max 100000\n", "proc/stat": stat(100, 0, 900)})
		time.Sleep(time.Second)
		assert.InDelta(t, 0.25, read("4000000"), 1e-9, "there is nothing to compare with yet")
		f.write(map[string]string{"proc/stat": stat(130, 0, 970)})
		assert.InDelta(t, 0.3, read("4000000"), 1e-9)
	})
}

// Inside a container the path of the group may be that of the host.
func TestReadGroupV2InContainer(t *testing.T) {
	t.Parallel()
	f := newTree(t, map[string]string{
		"proc/self/cgroup":                 "0::/../../kubepods/pod1\n",
		"sys/fs/cgroup/cgroup.controllers": "cpu\n",
		"sys/fs/cgroup/cpu.max":            "100000 100000\n",
		"sys/fs/cgroup/cpu.stat":           "usage_usec 0\n",
	})
	synctest.Test(t, func(t *testing.T) {
		c := f.cpu()
		time.Sleep(time.Second)
		f.write(map[string]string{"sys/fs/cgroup/cpu.stat": "usage_usec 700000\n"})
		share, err := c.Read()
		require.NoError(t, err)
		assert.InDelta(t, 0.7, share, 1e-9)
	})
}

func TestReadGroupV1(t *testing.T) {
	t.Parallel()
	f := newTree(t, map[string]string{
		"proc/self/cgroup":                                "12:memory:/docker/a\n4:cpu,cpuacct:/docker/a\n1:name=systemd:/\n",
		"sys/fs/cgroup/cpu/cpu.cfs_quota_us":              "-1\n",
		"sys/fs/cgroup/cpu/docker/a/cpu.cfs_quota_us":     "150000\n",
		"sys/fs/cgroup/cpu/docker/a/cpu.cfs_period_us":    "100000\n",
		"sys/fs/cgroup/cpuacct/docker/a/cpuacct.stat":     "user 1\nsystem 1\n",
		"sys/fs/cgroup/cpuacct/docker/a/cpuacct.usage":    "1000000000\n",
		"sys/fs/cgroup/memory/docker/a/cpu.cfs_quota_us":  "1\n",
		"sys/fs/cgroup/memory/docker/a/cpu.cfs_period_us": "1\n",
	})
	synctest.Test(t, func(t *testing.T) {
		c := f.cpu()
		time.Sleep(2 * time.Second)
		f.write(map[string]string{"sys/fs/cgroup/cpuacct/docker/a/cpuacct.usage": "2500000000\n"})
		share, err := c.Read()
		require.NoError(t, err)
		assert.InDelta(t, 0.5, share, 1e-9)
	})
}

// stat returns the first line of /proc/stat, in hundredths of a second.
func stat(user, iowait, idle int) string {
	return fmt.Sprintf("cpu  %d 0 0 %d %d 0 0 0 0 0\n", user, idle, iowait)
}

func TestReadMachine(t *testing.T) {
	t.Parallel()
	f := newTree(t, map[string]string{"proc/stat": stat(0, 0, 0)})
	c := f.cpu()
	for _, s := range []struct {
		user, iowait, idle int
		want               float64
	}{
		{80, 0, 20, 0.8},
		{90, 80, 30, 0.1}, // waiting for a disk is not being busy
		{90, 80, 30, 0.1}, // no time has passed
		{190, 80, 30, 1},
	} {
		f.write(map[string]string{"proc/stat": stat(s.user, s.iowait, s.idle)})
		share, err := c.Read()
		require.NoError(t, err)
		assert.InDelta(t, s.want, share, 1e-9)
	}
}

// What cannot be read is an error, and no figure.
func TestReadFails(t *testing.T) {
	t.Parallel()
	v2 := map[string]string{
		"proc/self/cgroup":                 "0::/\n",
		"proc/stat":                        stat(1, 1, 1),
		"sys/fs/cgroup/cgroup.controllers": "cpu\n",
		"sys/fs/cgroup/cpu.max":            "100000 100000\n",
		"sys/fs/cgroup/cpu.stat":           "usage_usec 1\n",
	}
	v1 := map[string]string{
		"proc/self/cgroup":                    "4:cpu,cpuacct:/\n",
		"sys/fs/cgroup/cpu/cpu.cfs_quota_us":  "100000\n",
		"sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
		"sys/fs/cgroup/cpuacct/cpuacct.stat":  "user 1\n",
		"sys/fs/cgroup/cpuacct/cpuacct.usage": "1\n",
	}
	for _, tt := range []struct {
		name  string
		files map[string]string
		file  string
		text  string // empty: the file is not there
		want  string
	}{
		{"no group", v2, "proc/self/cgroup", "4:cpu:/\n", "no control group for cpu"},
		{"no file of groups", v2, "proc/self/cgroup", "", "no such file"},
		{"a line too short", v2, "proc/self/cgroup", "0\n", "no control group for cpu"},
		{"one number", v2, "sys/fs/cgroup/cpu.max", "100000\n", "cannot make sense"},
		{"no number", v2, "sys/fs/cgroup/cpu.max", "some 100000\n", "cannot make sense"},
		{"no period", v2, "sys/fs/cgroup/cpu.max", "100000 0\n", "cannot make sense"},
		{"no usage", v2, "sys/fs/cgroup/cpu.stat", "", "sysload:"},
		{"version 1, no group", v1, "proc/self/cgroup", "0::/\n", "no control group for cpu"},
		{"version 1, a negative quota", v1, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-2\n", "cannot make sense"},
		{"version 1, no period", v1, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "", "cannot make sense"},
		{"version 1, no usage", v1, "sys/fs/cgroup/cpuacct/cpuacct.usage", "", "sysload:"},
		{"no times", map[string]string{}, "proc/stat", "", ErrNoTimes.Error()},
		{"strange times", map[string]string{}, "proc/stat", "cpu one two\n", ErrNoTimes.Error()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newTree(t, tt.files)
			c := f.cpu()
			if tt.text == "" {
				_ = os.Remove(filepath.Join(f.dir, tt.file))
			} else {
				f.write(map[string]string{tt.file: tt.text})
			}
			_, err := c.Read()
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func FuzzQuota(f *testing.F) {
	f.Add("max 100000", "0::/a/b\n")
	f.Add("50000 100000", "0::/../..\n")
	f.Add("-1 0", "::::")
	f.Fuzz(func(t *testing.T, quota, groups string) {
		tr := newTree(t, map[string]string{
			"proc/self/cgroup": groups, "sys/fs/cgroup/cgroup.controllers": "cpu\n", "sys/fs/cgroup/cpu.max": quota,
		})
		cpus, err := tr.cpu().limit()
		if err == nil {
			require.GreaterOrEqual(t, cpus, 0.0)
			require.LessOrEqual(t, cpus, 4.0)
		} else {
			require.Zero(t, cpus)
		}
	})
}
