package bulkhead

import "errors"

// ErrFull matches, with [errors.Is], every refusal of a bulkhead for want of room: no
// permit or worker was free. The Reason of the policy.RejectedError around it says
// how it came to that:
//
//   - concurrency: all are taken and the bulkhead does not let anybody wait
//   - waiters: all are taken and so is every place in the queue, or a call of higher
//     priority took this one's
//   - wait: none came free within MaxWait, or within the Target of an overloaded queue
//
// RetryAfter is zero: how long a call will take, nobody knows.
var ErrFull = errors.New("bulkhead: full")
