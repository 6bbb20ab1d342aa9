package alarm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/taskledger/taskledger/ledger"
)

// File is what a file of alarms says: what is worth one, and who gets them.
type File struct {
	Rules
	Receivers []Receiver `json:"receivers"`
}

// Parse reads a [File] as JSON and validates it, reporting every fault at once, each a
// [*ledger.InvalidError] that names the field. It reads no other file and no environment: see
// [Receiver.Validate].
func Parse(text []byte) (File, error) {
	var c File
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(&c)
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong) && wrong.Type == reflect.TypeFor[Duration]():
		return c, invalid(fieldName(wrong), "", "must be a duration such as 90s or 4h")
	case errors.As(err, &wrong) && wrong.Field != "":
		return c, invalid(fieldName(wrong), "", "must not be a %s", wrong.Value)
	case err != nil:
		return c, invalid("alarms", "", "%s", strings.TrimPrefix(err.Error(), "json: "))
	case d.More():
		return c, invalid("alarms", "", "must be one value")
	}
	return c, c.Validate()
}

// fieldName is the field as the file has it.
func fieldName(wrong *json.UnmarshalTypeError) string {
	return strings.TrimPrefix(wrong.Field, "Rules.")
}

// Validate reports every fault at once, each a [*ledger.InvalidError] that names the field.
func (c File) Validate() error {
	faults := c.Rules.faults()
	if len(c.Receivers) == 0 {
		faults = append(faults, invalid("receivers", "", "must not be empty"))
	}
	seen := make(map[string]bool)
	for i, r := range c.Receivers {
		field := fmt.Sprintf("receivers[%d].", i)
		for _, fault := range r.faults() {
			faults = append(faults, renamed(fault, field))
		}
		if seen[r.Name] {
			faults = append(faults, invalid(field+"name", r.Name, "is given twice"))
		}
		seen[r.Name] = true
	}
	return join(faults)
}

func join(faults []error) error { return errors.Join(faults...) }

func invalid(field, value, rule string, a ...any) error {
	return &ledger.InvalidError{Field: field, Value: value, Rule: fmt.Sprintf(rule, a...)}
}

// renamed gives the field of an [*ledger.InvalidError] another name, or a prefix that ends with a dot.
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
