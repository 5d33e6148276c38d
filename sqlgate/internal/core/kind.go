package core

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"net"
	"reflect"
	"strings"

	"github.com/breakwater-go/breakwater/policy"
)

// KindOf says what an error of a database means; [policy.NotRun] when it says nothing of
// itself.
func KindOf(err error) policy.Kind {
	switch {
	case err == nil, errors.Is(err, sql.ErrNoRows):
		return policy.Success
	case errors.Is(err, driver.ErrBadConn):
		return policy.Failure
	case errors.Is(err, sql.ErrTxDone), errors.Is(err, sql.ErrConnDone):
		return policy.Permanent
	}
	n, numbered := mysqlNumber(err)
	if k := kindOfNumber(n); k != policy.NotRun {
		return k
	}
	if state, ok := stateOf(err); ok {
		return kindOfState(state)
	}
	if numbered || isCallersFault(err) || IsRolledBack(err) {
		return policy.Permanent
	}
	return policy.NotRun
}

// isCallersFault recognizes what was wrong before the database was asked. These errors have
// no type, only the same beginning.
func isCallersFault(err error) bool {
	for e := err; e != nil; e = errors.Unwrap(e) {
		if t := e.Error(); strings.HasPrefix(t, "sql: ") || strings.HasPrefix(t, "failed to encode args[") {
			return true
		}
	}
	return false
}

// IsRolledBack reports whether a COMMIT was answered with a rollback: a statement before had
// failed, and nobody cared. Drivers say so in words only.
func IsRolledBack(err error) bool {
	t := err.Error()
	return strings.Contains(t, "commit unexpectedly resulted in rollback") || strings.Contains(t, "in a failed transaction")
}

// stateOf returns the SQLSTATE of an error.
func stateOf(err error) (string, bool) {
	if s, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		if state := s.SQLState(); len(state) == 5 {
			return state, true
		}
	}
	if e, ok := mysqlError(err); ok {
		if f := e.FieldByName("SQLState"); f.IsValid() && f.Type() == reflect.TypeFor[[5]byte]() {
			state := f.Interface().([5]byte) //nolint:forcetypeassert // just looked
			return string(state[:]), state != [5]byte{}
		}
	}
	return "", false
}

// mysqlError finds an error that looks like *mysql.MySQLError: its number is a field, which
// no interface can ask for, and to import the driver is to force it on everybody.
func mysqlError(err error) (reflect.Value, bool) {
	for ; err != nil; err = errors.Unwrap(err) {
		v := reflect.ValueOf(err)
		if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct || v.Elem().Type().Name() != "MySQLError" {
			continue
		}
		return v.Elem(), true
	}
	return reflect.Value{}, false
}

// mysqlNumber returns the number of an error of MySQL: of a method Number, or of the type of
// its usual driver.
func mysqlNumber(err error) (uint16, bool) {
	if n, ok := errors.AsType[interface {
		error
		Number() uint16
	}](err); ok {
		return n.Number(), true
	}
	if e, ok := mysqlError(err); ok {
		if f := e.FieldByName("Number"); f.IsValid() && f.Kind() == reflect.Uint16 {
			return uint16(f.Uint()), true //nolint:gosec // it is one
		}
	}
	return 0, false
}

// kindOfState classifies a SQLSTATE: the classes that are about the server, and else
// permanent, for it has answered. docs/reference/sqlgate.md says why.
func kindOfState(s string) policy.Kind {
	switch s {
	case "40001", "40P01", "40000", "55P03":
		return policy.Throttled // contention: the server is well, and another had the rows first
	case "40003":
		return policy.Failure // nobody knows what became of it
	case "57014", "25P04":
		return policy.Timeout // by the server's own limit, for the caller's end is known before
	case "57P03":
		return policy.Busy // it is starting up
	}
	switch s[:2] {
	case "53":
		return policy.Busy
	case "08", "57", "58", "F0", "HV", "XX":
		return policy.Failure
	}
	return policy.Permanent
}

// kindOfNumber classifies the numbers of MySQL and MariaDB that are about the server; the
// others have a SQLSTATE.
func kindOfNumber(n uint16) policy.Kind {
	switch n {
	case 1205, 1213: // lock wait timeout, deadlock
		return policy.Throttled
	case 1226: // over a limit of the user's
		return policy.Throttled
	case 1040, 1203, 1021, 1037, 1038, 1041: // too many connections, no disk or memory left
		return policy.Busy
	case 3024, 1969, 1907: // max_execution_time, max_statement_time
		return policy.Timeout
	case 1317: // killed by hand
		return policy.Canceled
	case 1053, 1077, 1079, 1080, 1158, 1159, 1160, 1161, 1184, 2006, 2013:
		return policy.Failure
	}
	return policy.NotRun
}

// IsContention reports whether a transaction was given up, and all of it undone, because of
// others beside it.
func IsContention(err error) bool {
	if n, ok := mysqlNumber(err); ok {
		return n == 1213 || n == 1205
	}
	state, ok := stateOf(err)
	return ok && (state == "40001" || state == "40P01")
}

// DidNotRun reports whether an error says that what it is about has surely not been done: no
// connection could be made, or nothing had been sent when it was lost.
func DidNotRun(err error) bool {
	if errors.Is(err, driver.ErrBadConn) {
		return true
	}
	if s, ok := errors.AsType[interface {
		error
		SafeToRetry() bool
	}](err); ok && s.SafeToRetry() {
		return true
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return true
	}
	if n, ok := mysqlNumber(err); ok {
		return n == 1040 || n == 1203
	}
	switch state, _ := stateOf(err); state {
	case "53300", "57P03", "08001", "08004":
		return true
	}
	return false
}

// WasAnswered reports whether the database itself has said what became of a COMMIT: that
// nothing did.
func WasAnswered(err error) bool {
	state, ok := stateOf(err)
	if !ok {
		_, ok = mysqlNumber(err)
		return ok
	}
	switch state[:2] {
	case "08", "57", "58", "XX":
		return false
	}
	return state != "40003"
}
