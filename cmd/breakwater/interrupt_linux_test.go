package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// text is what a program has printed so far.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *text) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *text) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// programs lists those whose temporary files are in a directory, and the children of a process:
// redis-server writes its title over its environment.
func programs(dir string, parent int) (names []string) {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range all {
		env, _ := os.ReadFile(filepath.Join(p, "environ"))
		status, _ := os.ReadFile(filepath.Join(p, "status"))
		if bytes.Contains(env, []byte("TMPDIR="+dir+"\x00")) || bytes.Contains(status, fmt.Appendf(nil, "PPid:\t%d\n", parent)) {
			name, _ := os.ReadFile(filepath.Join(p, "comm"))
			names = append(names, strings.TrimSpace(string(name))+" "+filepath.Base(p))
		}
	}
	return names
}

// Ctrl-C of a terminal ends a live run at once, wherever it is, and nothing of it is left: no
// server, and no file.
func TestIncidentInterrupted(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		args   []string
		server string // is waited for, where it is installed
		code   int
		out    string
	}{
		{"captcha", []string{"captcha"}, "", exitOK, "200 with a picture"}, // that is how it ends
		{"captcha for a time", []string{"captcha", "--for", "1h"}, "", exitInterrupted, "200 with a picture"},
		{"a scene", []string{"ocr"}, "", exitInterrupted, ""},
		{"the start of servers", []string{"aggregator"}, "", exitInterrupted, ""},
		{"the start of the last server", []string{"aggregator"}, "beam.smp", exitInterrupted, ""},
		{"a scene with a server", []string{"orders"}, "redis-server", exitInterrupted, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir, err := os.MkdirTemp("", "interrupt") //nolint:usetesting // a server of another user has its files below it
			require.NoError(t, err)
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			require.NoError(t, os.Chmod(dir, 0o755))
			var out, errOut text
			cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{"incident", "--live"}, tt.args...)...)
			cmd.Env = append(os.Environ(), "TMPDIR="+dir, runsMain+"=1")
			cmd.Stdout, cmd.Stderr = &out, &errOut
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			require.NoError(t, cmd.Start())
			ended := make(chan struct{})
			go func() {
				_ = cmd.Wait() // its code is looked at
				close(ended)
			}()
			var begun []string // programs
			require.Eventually(t, func() bool {
				if tt.server == "" {
					return strings.Contains(errOut.String(), "dashboard: ")
				}
				begun = programs(dir, cmd.Process.Pid)
				return strings.Contains(fmt.Sprint(begun), tt.server) || strings.Contains(errOut.String(), "left out: ")
			}, time.Minute, 20*time.Millisecond)
			if strings.Contains(errOut.String(), "left out: ") {
				t.Log(errOut.String())
			}
			require.NoError(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGINT))
			select {
			case <-ended:
			case <-time.After(15 * time.Second):
				_ = cmd.Process.Kill()
				<-ended
				t.Error("it did not end")
			}
			assert.Equal(t, tt.code, cmd.ProcessState.ExitCode(), errOut.String())
			if tt.out == "" {
				assert.Empty(t, out.String())
			}
			assert.Contains(t, out.String(), tt.out)
			require.Eventually(t, func() bool { return len(programs(dir, cmd.Process.Pid)) == 0 }, 10*time.Second, 20*time.Millisecond, "programs are left")
			for _, b := range begun {
				name, pid, _ := strings.Cut(b, " ")
				require.Eventually(t, func() bool {
					status, _ := os.ReadFile(filepath.Join("/proc", pid, "status"))
					// One that has ended stays as a zombie where nobody waits for it.
					return !bytes.Contains(status, []byte("Name:\t"+name+"\n")) || bytes.Contains(status, []byte("State:\tZ"))
				}, 10*time.Second, 20*time.Millisecond, "%s is left", b)
			}
			left, err := os.ReadDir(dir)
			require.NoError(t, err)
			assert.Empty(t, left)
		})
	}
}
