package amqpdefer

import (
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/breakwater-go/breakwater/fallback"
)

// Names of headers.
const (
	attemptHeader = "breakwater-attempt"
	returnsHeader = "x-delivery-count" // the broker's own
	headerPrefix  = "task."
)

// messageOf makes a message of a task whose next attempt has the given number.
func messageOf(t fallback.Task, attempt int) amqp.Publishing {
	headers := amqp.Table{attemptHeader: int64(attempt)}
	for k, v := range t.Header {
		headers[headerPrefix+k] = v
	}
	return amqp.Publishing{
		Headers: headers, ContentType: "application/octet-stream", DeliveryMode: amqp.Persistent,
		Type: t.Kind, MessageId: t.Key, Timestamp: time.Now(), Body: t.Payload,
	}
}

// deliveryOf returns the task in a message.
func deliveryOf(d *amqp.Delivery) fallback.Delivery {
	f := fallback.Delivery{
		Task:     fallback.Task{Kind: d.Type, Key: d.MessageId, Payload: d.Body},
		Attempt:  max(number(d.Headers[attemptHeader]), 1),
		Returned: max(number(d.Headers[returnsHeader]), 0),
	}
	for k, v := range d.Headers {
		if s, ok := v.(string); ok && strings.HasPrefix(k, headerPrefix) {
			if f.Header == nil {
				f.Header = map[string]string{}
			}
			f.Header[k[len(headerPrefix):]] = s
		}
	}
	return f
}

// number reads a number of whatever size.
func number(v any) int {
	switch n := v.(type) {
	case int64:
		return int(max(min(n, 1<<30), -1))
	case int32:
		return int(n)
	case int16:
		return int(n)
	case byte:
		return int(n)
	}
	return 0
}
