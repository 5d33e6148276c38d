module github.com/breakwater-go/breakwater/cmd/breakwater

go 1.26.0

require github.com/breakwater-go/breakwater v0.0.0

replace github.com/breakwater-go/breakwater => ../../
