package grpcx

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

// Methods returns a [ClientConfig] Idempotent that accepts the methods in the list, in full
// ("/shop.Inventory/Get"), and all methods of the services whose name ends in a slash
// ("/shop.Inventory/").
func Methods(names ...string) func(method string) bool {
	list := make(map[string]bool, len(names))
	for _, n := range names {
		list[n] = true
	}
	return func(method string) bool {
		return list[method] || list[method[:strings.LastIndexByte(method, '/')+1]]
	}
}

// Declared is a [ClientConfig] Idempotent that accepts the methods whose definition says so:
// with option idempotency_level = NO_SIDE_EFFECTS or IDEMPOTENT, in a file whose generated
// code is linked in.
func Declared(method string) bool {
	name := strings.Replace(strings.TrimPrefix(method, "/"), "/", ".", 1)
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		return false
	}
	opts, ok := d.Options().(*descriptorpb.MethodOptions)
	return ok && opts.GetIdempotencyLevel() != descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN
}
