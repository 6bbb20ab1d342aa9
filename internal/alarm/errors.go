package alarm

import (
	"errors"
	"fmt"
	"strings"

	"github.com/taskledger/taskledger/ledger"
)

// isConflict reports whether an append failed because another process appended first.
func isConflict(err error) bool {
	var conflict *ledger.ConflictError
	var transition *ledger.TransitionError
	return errors.As(err, &conflict) || errors.As(err, &transition)
}

func join(faults []error) error { return errors.Join(faults...) }

// split returns the errors that [errors.Join] has joined.
func split(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return nil
}

func invalid(field, value, rule string, a ...any) error {
	return &ledger.InvalidError{Field: field, Value: value, Rule: fmt.Sprintf(rule, a...)}
}

// renamed returns an [*ledger.InvalidError] with another name of its field. A name that ends with a dot is a prefix.
func renamed(err error, field string) error {
	var e *ledger.InvalidError
	if !errors.As(err, &e) {
		return err
	}
	if strings.HasSuffix(field, ".") {
		field += e.Field
	}
	return &ledger.InvalidError{Field: field, Value: e.Value, Rule: e.Rule}
}
