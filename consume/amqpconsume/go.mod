module github.com/breakwater-go/breakwater/consume/amqpconsume

go 1.26.0

require (
	github.com/breakwater-go/breakwater v0.0.0-00010101000000-000000000000
	github.com/rabbitmq/amqp091-go v1.16.0
)

require (
	github.com/bits-and-blooms/bitset v1.24.4 // indirect
	github.com/failsafe-go/failsafe-go v0.9.8 // indirect
)

replace github.com/breakwater-go/breakwater => ../../
