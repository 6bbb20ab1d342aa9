package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Shape names a format of the data of events.
type Shape struct {
	Kind    Kind      // "" for all kinds
	Type    EventType // required
	Version int       // from 1: Event.DataVersion
}

// Upcasts convert the data of old events to the current format when they are read. The function of a [Shape] returns
// the data in the next version. The functions of successive versions are called, beginning with the event's version. A
// function for the event's kind takes precedence over a function for all kinds. The functions must be safe for
// concurrent use. The ledger itself does not change.
type Upcasts map[Shape]func(Event) (json.RawMessage, error)

// DataVersion is the version of the format of data that this package and its services write, except args, whose format
// is the producer's. Each older version that was ever written has files in testdata/shapes, and a function in
// ownUpcasts.
const DataVersion = 1

// ownUpcasts convert data of older versions of taskledger to the current format, wherever events are read.
var ownUpcasts = Upcasts{}

// Upcast returns an event with its data in the current format, for statements that select a part of the columns.
// Functions of this package do so themselves. Errors: [*UpcastError].
func Upcast(e Event) (Event, error) {
	if len(ownUpcasts) == 0 { // saves two look-ups
		return e, nil
	}
	return ownUpcasts.Event(e)
}

// UpcastError reports data that could not be converted to the current format.
type UpcastError struct {
	Event Event // with the version of data for which the function failed
	Err   error // of the function, or its panic
}

func (e *UpcastError) Error() string {
	return fmt.Sprintf("%s: data version %d cannot be upcast: %v", e.Event.ID(), e.Event.DataVersion, e.Err)
}

// Unwrap returns the error of the function.
func (e *UpcastError) Unwrap() error { return e.Err }

// Validate reports every fault of u at once.
func (u Upcasts) Validate() error {
	var faults []error
	for shape, f := range u {
		if _, ok := transition(shape.Type); !ok || shape.Version < 1 || f == nil {
			faults = append(faults, fmt.Errorf(
				"Upcasts must have an event type, a version from 1 and a function, got %+v", shape))
		}
	}
	return errors.Join(faults...)
}

// Event returns an event with its data in the current format. An error or panic of a function is an [*UpcastError].
func (u Upcasts) Event(e Event) (Event, error) {
	for {
		f := u.of(e)
		if f == nil {
			return e, nil
		}
		data, err := callUpcast(f, e)
		if err != nil {
			return e, &UpcastError{Event: e, Err: err}
		}
		e.Data = data
		e.DataVersion++
	}
}

// All returns events with their data in the current format, and does not change its argument. An error or panic of a
// function is an [*UpcastError].
func (u Upcasts) All(events []Event) ([]Event, error) {
	if len(u) == 0 {
		return events, nil
	}
	all := make([]Event, len(events))
	for i, e := range events {
		var err error
		if all[i], err = u.Event(e); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// of returns the function for an event, nil if its data is in the current format.
func (u Upcasts) of(e Event) func(Event) (json.RawMessage, error) {
	if f := u[Shape{e.Kind, e.Type, e.DataVersion}]; f != nil {
		return f
	}
	return u[Shape{"", e.Type, e.DataVersion}]
}

func callUpcast(f func(Event) (json.RawMessage, error), e Event) (data json.RawMessage, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("panic: %v", value)
		}
	}()
	if data, err = f(e); err == nil && data != nil && !json.Valid(data) {
		err = errors.New("it has returned invalid JSON")
	}
	return data, err
}
