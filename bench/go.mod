module github.com/breakwater-go/breakwater/bench

go 1.26.0

require (
	github.com/afex/hystrix-go v0.0.0-20180502004556-fa1af6a1f4f5
	github.com/breakwater-go/breakwater v0.0.0
	github.com/failsafe-go/failsafe-go v0.9.8
	github.com/panjf2000/ants/v2 v2.12.1
	github.com/sony/gobreaker/v2 v2.4.0
	github.com/sourcegraph/conc v0.3.0
	github.com/throttled/throttled/v2 v2.15.0
	github.com/zeromicro/go-zero v1.10.3
	go.uber.org/ratelimit v0.3.1
	golang.org/x/sync v0.25.0
	golang.org/x/time v0.16.0
)

require (
	github.com/benbjohnson/clock v1.3.0 // indirect
	github.com/bits-and-blooms/bitset v1.24.4 // indirect
	github.com/breakwater-go/breakwater/ratelimit/redislimit v0.0.0
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/fatih/color v1.18.0 // indirect
	github.com/go-redis/redis_rate/v10 v10.0.1
	github.com/hashicorp/golang-lru v0.5.4 // indirect
	github.com/influxdata/tdigest v0.0.1 // indirect
	github.com/mattn/go-colorable v0.1.14 // indirect
	github.com/mattn/go-isatty v0.0.20 // indirect
	github.com/redis/go-redis/v9 v9.23.0
	github.com/smartystreets/goconvey v1.8.1 // indirect
	github.com/spaolacci/murmur3 v1.1.0 // indirect
	go.opentelemetry.io/otel v1.47.0 // indirect
	go.opentelemetry.io/otel/trace v1.47.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	go.uber.org/automaxprocs v1.6.0 // indirect
	go.uber.org/multierr v1.9.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
)

replace github.com/breakwater-go/breakwater => ../

replace github.com/breakwater-go/breakwater/ratelimit/redislimit => ../ratelimit/redislimit
