module github.com/breakwater-go/breakwater/connectx

go 1.26.0

require (
	connectrpc.com/connect v1.21.1
	github.com/breakwater-go/breakwater v0.0.0-00010101000000-000000000000
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261012220534-4341edf3f941
	google.golang.org/protobuf v1.36.12
)

require (
	github.com/bits-and-blooms/bitset v1.24.4 // indirect
	github.com/failsafe-go/failsafe-go v0.9.8 // indirect
)

replace github.com/breakwater-go/breakwater => ../
