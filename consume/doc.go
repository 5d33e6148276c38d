// Package consume runs the handler of a consumer of messages under a pipeline, for queues that
// deliver at least once. The packages amqpconsume and kafkaconsume, modules of their own,
// connect it to RabbitMQ and Kafka; another queue needs what they have: a loop that fetches, and
// a line for each [Verdict].
//
// A message whose handler was not let run has not been tried: nothing is wrong with it, and
// giving it back would use up one of its deliveries. So while the pipeline refuses (its breaker
// is open, its limit reached) the workers keep what they have and wait, which is the pause
// that the dependency needs. Most queues send no more to a consumer that acknowledges nothing.
//
// A handler that fails is tried again here, after a delay that doubles, up to MaxAttempts;
// failures that leave a breaker open do not count, since they say nothing about the message. What
// then remains, and at once what fails for good ([policy.Permanent]), goes to the dead letters.
package consume
