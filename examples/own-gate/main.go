// Command own-gate guards a dependency with a gate of its own: a daily quota.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

func main() {
	geocoder, err := policy.New("geocoder", QuotaConfig{Limit: 3})
	if err != nil {
		log.Fatal(err)
	}
	for range 4 {
		place, err := policy.Do(context.Background(), geocoder, func(context.Context) (string, error) {
			return "52.52 N, 13.41 E", nil // the vendor bills each of these
		})
		if re, ok := errors.AsType[*policy.RejectedError](err); ok && errors.Is(err, ErrQuota) {
			fmt.Printf("%s (it is %s)\n", re, time.Now().UTC().Format(time.TimeOnly+" MST"))
			continue
		}
		fmt.Println(place, err)
	}
	left := geocoder.Snapshot().Policies[0].Limiter.Tokens
	fmt.Println("left today:", left)
}
