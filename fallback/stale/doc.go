// Package stale remembers the last good value of each key, and serves it while the
// dependency cannot: a fallback that knows how old its answer is.
//
//	stocks, err := stale.New(inventory, stale.Config[Stock]{Fresh: time.Minute, MaxAge: time.Hour})
//	r, err := stocks.GetResult(ctx, sku, func(ctx context.Context) (Stock, error) {
//		return client.Stock(ctx, sku)
//	})
//	if r.Degraded { … } // r.Age old, because of r.Cause
//
// # What a caller gets
//
// A value younger than Fresh is served as it is. One that is older but not older than
// MaxAge is stale: it is served at once, marked as degraded, while one load of the key
// runs in the background. Wait makes callers wait for that load first. With no value, or
// one older than MaxAge, callers wait for the one load of the key and share what it brings:
// a value, an error, or a panic.
//
// A load goes through the pipeline of the dependency, with its limits, its breaker and its
// retries. Where that refuses it or fails, the stale value stands in and is kept; a load is
// then tried again RetryIn later, not by every caller. A permanent error, such as "not
// found", is an answer: it takes the place of the value, and is remembered for NegativeFor.
//
// The age of a value is counted from the start of the first attempt of its load. No value
// older than MaxAge is ever served, and there is no way to turn that off.
//
// # What runs where
//
// Loads run on goroutines of the cache, so that a caller who leaves does not take the load
// of all others along. There is at most one for each key. Those that somebody waits for are
// bounded by their callers: the load that the last of them leaves is canceled. The others
// are bounded by MaxRefreshes. A load runs under the values of the context of the caller who
// began it, within LoadTimeout, and not under that caller's deadline.
//
// All callers get the same value: if it is a pointer, a map or a slice, they share what it
// refers to and must not change it.
package stale
