package loop

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// PanicError is a panic of a function that a service runs.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.Value, e.Stack) }

// ErrGoexit is the error of a function that has called [runtime.Goexit].
var ErrGoexit = errors.New("the function has called runtime.Goexit")

// Guard calls f in its own goroutine and returns the error of f, [ErrGoexit], or a panic as a [*PanicError]. A panic of
// the error's methods counts, such as Error or Unwrap of a nil pointer.
func Guard(f func() error) error {
	returned := make(chan error, 1)
	start(f, func(err error) { returned <- err })
	return <-returned
}

// start calls f in a new goroutine, and then ended with the error that [Guard] returns.
func start(f func() error, ended func(error)) {
	go func() {
		err := ErrGoexit // unless f returns
		defer func() {
			if value := recover(); value != nil {
				err = &PanicError{Value: value, Stack: debug.Stack()}
			}
			ended(err)
		}()
		if err = f(); err != nil {
			_ = err.Error()
			_ = errors.Is(err, ErrGoexit)
			_ = errors.As(err, new(*PanicError))
		}
	}()
}
