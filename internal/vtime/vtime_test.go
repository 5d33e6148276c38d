package vtime_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/internal/vtime"
)

func TestAnHourTakesNoTimeAndBeginsAtTheSameInstant(t *testing.T) {
	t.Parallel()
	begin := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	for range 2 {
		var from, to time.Time
		require.NoError(t, vtime.Run(func() {
			from = time.Now()
			var wg sync.WaitGroup
			for i := range 100 {
				wg.Go(func() { time.Sleep(time.Hour - time.Duration(i)) })
			}
			wg.Wait()
			to = time.Now()
		}))
		assert.True(t, from.Equal(begin), "began at %s", from)
		assert.Equal(t, time.Hour, to.Sub(from))
	}
}

func TestManyBubblesSideBySide(t *testing.T) {
	t.Parallel()
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			assert.NoError(t, vtime.Run(func() {
				ticks, tick := 0, time.NewTicker(time.Second)
				defer tick.Stop()
				for range i {
					<-tick.C
					ticks++
				}
				assert.Equal(t, i, ticks)
			}))
		})
	}
	wg.Wait()
}

func TestWait(t *testing.T) {
	t.Parallel()
	require.NoError(t, vtime.Run(func() {
		done := false
		go func() { done = true }()
		vtime.Wait()
		assert.True(t, done)
	}))
}

func TestAPanicIsRaisedInTheCaller(t *testing.T) {
	t.Parallel()
	cause := errors.New("broken")
	defer func() {
		e, ok := recover().(*vtime.PanicError)
		require.True(t, ok)
		require.ErrorIs(t, e, cause)
		assert.Contains(t, e.Error(), "broken")
		assert.Contains(t, e.Error(), "panics(", "the stack is that of the panic")
	}()
	_ = vtime.Run(func() { panics(cause) })
	t.Error("Run returned")
}

//go:noinline
func panics(err error) { panic(err) }

func TestAPanicCountsMoreThanWhatItLeftBehind(t *testing.T) {
	t.Parallel()
	assert.Panics(t, func() {
		_ = vtime.Run(func() {
			go stuck(0)
			panic("broken")
		})
	})
}

func TestGoexitEndsTheCaller(t *testing.T) {
	t.Parallel()
	after := false
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = vtime.Run(runtime.Goexit)
		after = true
	}()
	<-done
	assert.False(t, after)
}

func TestStuckGoroutinesAreAnError(t *testing.T) {
	t.Parallel()
	for name, fn := range map[string]func(){
		"all of them":      func() { stuck(0) },
		"one left behind":  func() { go stuck(0) },
		"a sleeper behind": func() { go stuck(time.Hour) },
	} {
		err := vtime.Run(fn)
		require.ErrorIs(t, err, vtime.ErrStuck, name)
		assert.Contains(t, err.Error(), "deadlock", name)
	}
	assert.NoError(t, vtime.Run(func() {}), "and the next run is none the worse")
}

func stuck(after time.Duration) {
	time.Sleep(after)
	<-make(chan int)
}

func TestWithinABubbleItIsAnError(t *testing.T) {
	t.Parallel()
	require.NoError(t, vtime.Run(func() {
		assert.ErrorIs(t, vtime.Run(func() { t.Error("ran") }), vtime.ErrNested)
	}))
	synctest.Test(t, func(t *testing.T) {
		assert.ErrorIs(t, vtime.Run(func() { t.Error("ran") }), vtime.ErrNested)
	})
}

// A program is what Run is for: its flags and its output must be its own.
func TestInAProgram(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "program")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./testdata/program")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	run := exec.CommandContext(t.Context(), binary, "-hours", "3")
	run.Stderr = os.Stderr
	out, err = run.Output()
	require.NoError(t, err)
	assert.Equal(t, "3h0m0s\nflags: hours\nstuck: true\n", string(out))
}
