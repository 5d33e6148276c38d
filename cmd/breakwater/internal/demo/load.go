package demo

import (
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// patience is how long a user waits for an answer.
const patience = 5 * time.Second

// longestSequence is more than an hour of requests. A longer run begins again.
const longestSequence = 1 << 20

// load sends an open-loop stream of requests to one service: at a constant rate,
// whether or not earlier ones have been answered.
type load struct {
	attacker  *vegeta.Attacker
	transport *http.Transport
	rate      int
	seed      uint64
}

func newLoad(rate int, seed uint64) *load {
	tr := newTransport()
	return &load{
		rate: rate, seed: seed, transport: tr,
		attacker: vegeta.NewAttacker(
			vegeta.Client(&http.Client{Transport: tr, Timeout: patience}),
			vegeta.Workers(64),
			vegeta.MaxWorkers(4000),
			vegeta.MaxBody(1<<12),
		),
	}
}

// run sends requests to the service at url for d, and hands over each result with
// the time at which its request was sent. It returns when all have been answered or
// given up.
func (l *load) run(url string, d time.Duration, add func(at time.Time, r result)) {
	defer l.transport.CloseIdleConnections()
	targets := targeter(url, sequence(l.seed, longestSequence))
	pacer := vegeta.ConstantPacer{Freq: l.rate, Per: time.Second}
	for r := range l.attacker.Attack(targets, pacer, d, "") {
		res := result{
			latency:  r.Latency,
			ok:       r.Error == "" && r.Code == http.StatusOK,
			degraded: r.Headers.Get(degradedHeader) != "",
		}
		if strings.HasSuffix(r.URL, routePaths[routePrice]) {
			res.route = routePrice
		}
		add(r.Timestamp, res)
	}
}

// stop sends no further requests. Those on their way are waited for by run.
func (l *load) stop() { l.attacker.Stop() }

// sequence returns the routes of n requests, the same ones for the same seed.
func sequence(seed uint64, n int) []uint8 {
	rnd := rand.New(rand.NewPCG(seed, 0))
	seq := make([]uint8, n)
	for i := range seq {
		seq[i] = uint8(rnd.IntN(routes))
	}
	return seq
}

// targeter hands out the requests of a sequence one after the other, and from the
// start again when it is used up.
func targeter(url string, seq []uint8) vegeta.Targeter {
	var next atomic.Uint64
	return func(t *vegeta.Target) error {
		i := (next.Add(1) - 1) % uint64(len(seq))
		t.Method = http.MethodGet
		t.URL = url + routePaths[seq[i]]
		return nil
	}
}
