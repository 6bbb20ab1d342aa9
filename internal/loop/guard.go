package loop

import (
	"fmt"
	"runtime/debug"
)

// PanicError is a panic of a function that a user gave to a service.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.Value, e.Stack) }

// Guard calls f and returns its error. It returns a panic as a [*PanicError].
func Guard(f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{Value: value, Stack: debug.Stack()}
		}
	}()
	if err = f(); err != nil {
		_ = err.Error() // an Error method that panics, for example on a nil pointer, does so here
	}
	return err
}
