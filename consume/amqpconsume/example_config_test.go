package amqpconsume_test

import (
	"fmt"

	"github.com/breakwater-go/breakwater/consume"
	"github.com/breakwater-go/breakwater/consume/amqpconsume"
)

// All that is wrong is said at once.
func ExampleConfig_Validate() {
	err := amqpconsume.Config{Config: consume.Config{Workers: -1}, Prefetch: -1}.Validate()
	fmt.Println(err)
	// Output:
	// consume.Workers: -1: at least 0 (0 means 10)
	// amqpconsume.Queue: : want the name of a queue
	// amqpconsume.Prefetch: -1: 0 to 65535 (0 means 50)
}
