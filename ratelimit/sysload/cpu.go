package sysload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/shirou/gopsutil/v4/common"
	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/docker"
)

// ErrNoTimes is returned where the system does not say how busy its processors are.
var ErrNoTimes = errors.New("sysload: the system has no CPU times")

// CPU reads the share of CPU time that is used, of what may be used. Use [NewCPU]. It is
// safe for concurrent use.
//
// In a Linux control group with a limit on CPU time (a container with a limit of 2 CPUs,
// say), version 1 or 2, that is the time used by the whole group, as a share of the limit:
// of the lowest one, where groups are nested, and never more than the processors the
// process may run on. Without such a limit, and on other systems, it is the time that the
// machine was busy, whoever kept it busy, as a share of the time of all its processors;
// waiting for a disk is not being busy.
//
// The limit is read each time, as it can be changed. HOST_PROC and HOST_SYS in the
// environment take the place of /proc and /sys.
type CPU struct {
	ctx       context.Context //nolint:containedctx // it carries the places of files, and is never done
	proc, sys string
	cpus      float64 // that the process may run on
	start     time.Time

	mu    sync.Mutex
	last  reading
	share float64
}

// reading is what was read at one time.
type reading struct {
	limited   bool    // it is about the control group
	used, all float64 // seconds of CPU time that were used, and that there were, per CPU of the limit if there is one
}

// NewCPU returns a CPU that reads from now on.
func NewCPU() *CPU {
	return newCPU(place("HOST_PROC", "/proc"), place("HOST_SYS", "/sys"), runtime.NumCPU())
}

// place returns a place in the file system that can be overridden.
func place(variable, usual string) string {
	if dir := os.Getenv(variable); dir != "" {
		return dir
	}
	return usual
}

func newCPU(proc, sys string, cpus int) *CPU {
	env := common.EnvMap{common.HostProcEnvKey: proc, common.HostSysEnvKey: sys}
	c := &CPU{
		ctx:  context.WithValue(context.Background(), common.EnvKey, env),
		proc: proc, sys: sys, cpus: float64(cpus), start: time.Now(),
	}
	_, _ = c.Read() // whatever is wrong will be wrong the next time too
	return c
}

// Read returns the share of CPU time that was used since Read was last called, or since
// [NewCPU]: 1 is all that may be used. It can be a little more, as a group may exceed its
// limit for moments. If no time has passed, or the limit has just come or gone, it is
// what it was the last time.
//
// It reads a few small files, which takes some tens of microseconds. An error says what could
// not be read.
func (c *CPU) Read() (share float64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	limit, err := c.limit()
	if err != nil {
		return 0, err
	}
	now, cpus := reading{limited: limit > 0}, 1.0
	if now.limited {
		cpus = limit
		now.all = time.Since(c.start).Seconds()
		now.used, err = c.ofGroup()
	} else {
		now.used, now.all, err = c.ofMachine()
	}
	if err != nil {
		return 0, err
	}
	if all := (now.all - c.last.all) * cpus; now.limited == c.last.limited && all > 0 {
		c.share = max(now.used-c.last.used, 0) / all
	}
	c.last = now
	return c.share, nil
}

// ofGroup returns the seconds of CPU time that the control group has used.
func (c *CPU) ofGroup() (used float64, err error) {
	stat, err := docker.CgroupCPUOwnWithContext(c.ctx)
	if err != nil {
		return 0, fmt.Errorf("sysload: %w", err)
	}
	return stat.Usage, nil
}

// ofMachine returns the seconds for which all processors together have been busy, and
// have been there.
func (c *CPU) ofMachine() (busy, all float64, err error) {
	times, err := cpu.TimesWithContext(c.ctx, false)
	if err != nil {
		return 0, 0, fmt.Errorf("sysload: %w", err)
	}
	if len(times) == 0 {
		return 0, 0, ErrNoTimes
	}
	t := times[0]
	busy = t.User + t.System + t.Nice + t.Irq + t.Softirq + t.Steal // guests are in User
	return busy, busy + t.Idle + t.Iowait, nil
}
