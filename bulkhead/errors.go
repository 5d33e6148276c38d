package bulkhead

import "errors"

// ErrFull matches, with [errors.Is], every refusal of a bulkhead: no permit was
// free. The Reason of the policy.RejectedError around it says how it came to that:
//
//   - concurrency: every permit is taken and the bulkhead does not wait
//   - waiters: every permit is taken and so is every place in the queue
//   - wait: no permit came free within MaxWait
//
// RetryAfter is zero: how long a call will take, nobody knows.
var ErrFull = errors.New("bulkhead: full")
