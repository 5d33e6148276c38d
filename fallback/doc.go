// Package fallback answers in place of a call that failed: with a fixed value
// ([Value]), with what a function makes of the failure ([Func]), with the first of several
// that succeeds ([Chain]), or by handing the work to a durable queue ([Defer]). [ErrorMap]
// changes the error where nothing answers.
//
// The short forms give a policy.Fallback of the call's type. Handed to policy.For it
// is checked by the compiler; handed to policy.New, among the other policies, it
// serves calls of every type, and one whose type differs gets an error that says so.
// [Config] has the settings beyond that: a name, and which failures it answers for.
//
// # When it answers
//
// Last: after the gates have refused, after retries are used up, and also after the
// total timeout. By default for everything that says that the dependency could not
// answer: refusals, failures, timeouts, busy and throttled. Not for a permanent
// error, which is an answer (a missing row is missing, whatever a default says); and
// never when the caller has given up, since nobody is there to be answered, unless
// AfterCancel asks for it.
//
// The breaker and the metrics still see the failure: a fallback changes what the
// caller gets, not what happened.
//
// # What runs where
//
// The function runs on the caller's goroutine. Its context is the caller's own, so
// the total timeout of the pipeline does not end it, while a deadline that the
// caller set does and may have passed already. The policies of the pipeline do not
// guard it: a fallback that is expensive gets a Gate of its own, and one that calls
// another dependency should do so through that one's pipeline. It holds no permit of the failed call, except that of a value which
// it may replace. A panic in it passes through to the caller, like one in the call
// itself.
//
// An error of the function is joined with the one it should have hidden, so
// [errors.Is] finds both.
//
// # When not to use it
//
// Where a wrong answer is worse than none (a payment, a permission), and where the
// fallback is slower or weaker than what failed: it will be called for every call at
// once, at the busiest moment there is.
package fallback
