package redisx

import (
	"fmt"
	"reflect"

	"github.com/redis/go-redis/v9"
)

// give makes a command of the caller what the one of an attempt has become.
func give(to, from redis.Cmder) error {
	t, f := reflect.ValueOf(to), reflect.ValueOf(from)
	if t.Kind() != reflect.Pointer || t.Type() != f.Type() {
		return fmt.Errorf("redisx: a %T cannot be copied", to)
	}
	t.Elem().Set(f.Elem())
	return nil
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
