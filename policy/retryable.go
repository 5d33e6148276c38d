package policy

// Libraries that retry by themselves ask an error whether that makes sense, the AWS SDK for Go
// by a method RetryableError. A layer on top of a pipeline should retry neither a refusal nor
// what the pipeline has given up.

// RetryableError is false: another try at once would meet the same refusal.
func (e *RejectedError) RetryableError() bool { return false }

// RetryableError is false: the pipeline would have tried again if that made sense.
func (e *GaveUpError) RetryableError() bool { return false }
