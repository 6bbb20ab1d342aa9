// Package settings decodes files of settings. Its errors name the field and the rule.
package settings

import (
	"cmp"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/strictjson"
	"github.com/taskledger/taskledger/ledger"
)

// Decode decodes one JSON value into a struct that declares all its members. It returns an [*ledger.InvalidError]; what
// names the file in it.
func Decode(what string, text []byte, into any) error {
	err := strictjson.Unmarshal(text, into)
	var mismatch *json.UnmarshalTypeError
	var wrong *strictjson.Error
	switch {
	case errors.As(err, &wrong):
		return invalid(cmp.Or(wrong.Field, what), wrong.Rule)
	case errors.As(err, &mismatch) && mismatch.Type == reflect.TypeFor[Duration]():
		return invalid(strictjson.FieldName(mismatch), "must be a duration such as 90s or 4h")
	case errors.As(err, &mismatch) && mismatch.Field != "":
		return invalid(strictjson.FieldName(mismatch), "must not be a "+mismatch.Value)
	case err != nil:
		return invalid(what, strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

func invalid(field, rule string) error { return &ledger.InvalidError{Field: field, Rule: rule} }

// Below returns an [*ledger.InvalidError] with its field placed below another field, whose name ends with a dot.
func Below(field string, err error) error {
	var e *ledger.InvalidError
	if !errors.As(err, &e) {
		return err
	}
	return &ledger.InvalidError{Field: field + e.Field, Value: e.Value, Rule: e.Rule}
}

// Duration is a [time.Duration] whose text form is such as 90s or 4h.
type Duration time.Duration

// UnmarshalText parses the format of [time.ParseDuration].
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		// The decoder adds the field to this type.
		return &json.UnmarshalTypeError{Value: "string", Type: reflect.TypeFor[Duration]()}
	}
	*d = Duration(parsed)
	return nil
}

// MarshalText returns String.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

func (d Duration) String() string { return time.Duration(d).String() }
