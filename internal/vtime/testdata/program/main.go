// Command program uses virtual time as a command does.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/breakwater-go/breakwater/internal/vtime"
)

func main() {
	hours := flag.Int("hours", 1, "")
	flag.Parse()
	err := vtime.Run(func() {
		begin := time.Now()
		time.Sleep(time.Duration(*hours) * time.Hour)
		fmt.Println(time.Since(begin))
	})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Print("flags:")
	flag.VisitAll(func(f *flag.Flag) { fmt.Print(" ", f.Name) })
	err = vtime.Run(func() { <-make(chan int) })
	fmt.Printf("\nstuck: %t\n", errors.Is(err, vtime.ErrStuck))
}
