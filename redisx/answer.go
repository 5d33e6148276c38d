package redisx

import (
	"fmt"
	"reflect"

	"github.com/redis/go-redis/v9"
)

// give gives a command of the caller what the one of an attempt has got. All types of go-redis
// have SetVal and Val, of the same types. The rest of the command stays as it is, as somebody may
// wait for it already.
func give(to, from redis.Cmder) error {
	to.SetErr(from.Err())
	set, val := reflect.ValueOf(to).MethodByName("SetVal"), reflect.ValueOf(from).MethodByName("Val")
	if !set.IsValid() || !val.IsValid() || set.Type().NumIn() != val.Type().NumOut() {
		return fmt.Errorf("redisx: the value of a %T cannot be set", to)
	}
	for i := range set.Type().NumIn() {
		if set.Type().In(i) != val.Type().Out(i) {
			return fmt.Errorf("redisx: the value of a %T cannot be set", to)
		}
	}
	set.Call(val.Call(nil))
	return nil
}

// borrows reports whether a command writes to memory, or a writer, of the caller: it is not
// tried twice, nor beside the caller.
func borrows(cmd redis.Cmder) bool { return cmd.NoRetry() }

// errBorrows says why such a command does not run.
func errBorrows(cmd redis.Cmder) error {
	return fmt.Errorf("redisx: %T writes to memory of its caller, which an attempt on a bulkhead.Pool may outlive: send it through a pipeline without one", cmd)
}

// answer makes the value of a fallback that of a command.
func answer(cmd redis.Cmder, v any) error {
	if m := reflect.ValueOf(cmd).MethodByName("SetVal"); m.IsValid() && m.Type().NumIn() == 1 {
		in := m.Type().In(0)
		switch rv := reflect.ValueOf(v); {
		case v == nil && (in.Kind() == reflect.Interface || in.Kind() == reflect.Slice || in.Kind() == reflect.Map || in.Kind() == reflect.Pointer):
			m.Call([]reflect.Value{reflect.Zero(in)})
			return nil
		case v != nil && rv.Type().AssignableTo(in):
			m.Call([]reflect.Value{rv})
			return nil
		}
	}
	return fmt.Errorf("redisx: the fallback's %T is no answer to %s", v, cmd.FullName())
}

// answerMany does so for a pipeline, whose answer is a list of values.
func answerMany(cmds []redis.Cmder, v any) error {
	values, ok := v.([]any)
	if !ok || len(values) != len(cmds) {
		return fmt.Errorf("redisx: the fallback's %T is no list of %d answers", v, len(cmds))
	}
	for i, c := range cmds {
		if err := answer(c, values[i]); err != nil {
			return err
		}
		c.SetErr(nil)
	}
	return nil
}
