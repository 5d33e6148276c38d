package rls_test

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/ratelimit/rls"
	"github.com/breakwater-go/breakwater/ratelimit/sharedlimit"
)

func Example() {
	p, err := policy.New("inventory", rls.Config{
		Target:      "127.0.0.1:8081", // need not be there yet
		DialOptions: []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())},
		Domain:      "shop",
		Limits: []rls.Limit{
			{Name: "route", Entries: []rls.Entry{{Key: "dependency", Value: "inventory"}}, Rate: ratelimit.PerSecond(6000)},
			{Name: "user", KeyEntry: "user", Rate: ratelimit.PerMinute(60)},
		},
		Settings: sharedlimit.Settings{Nodes: 4},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer p.Close(context.Background())
	for _, l := range p.Snapshot().Policies[0].Limiter.Limits {
		fmt.Println(l.Name, l.Limiter.Rate, l.Limiter.Burst)
	}
	// Output:
	// route 6000 6000
	// user 1 1
}
