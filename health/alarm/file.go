package alarm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// File is the content of a file of alarms: the rules and the receivers.
type File struct {
	Rules
	Receivers []Receiver `json:"receivers"`
}

// Parse parses a [File] in JSON and validates it. It reports every fault at once, each an [*ledger.InvalidError]
// with the name of the field. It validates secrets, see [Receiver.Validate].
func Parse(text []byte) (File, error) {
	var f File
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(&f)
	var mismatch *json.UnmarshalTypeError
	switch {
	case errors.As(err, &mismatch) && mismatch.Type == reflect.TypeFor[Duration]():
		return f, invalid(fieldName(mismatch), "", "must be a duration such as 90s or 4h")
	case errors.As(err, &mismatch) && mismatch.Field != "":
		return f, invalid(fieldName(mismatch), "", "must not be a %s", mismatch.Value)
	case err != nil:
		return f, invalid("alarms", "", "%s", strings.TrimPrefix(err.Error(), "json: "))
	case d.More():
		return f, invalid("alarms", "", "must be one value")
	}
	return f, f.Validate()
}

// fieldName returns the name of a field in the file.
func fieldName(mismatch *json.UnmarshalTypeError) string {
	return strings.TrimPrefix(mismatch.Field, "Rules.")
}

// Validate reports every fault at once, each an [*ledger.InvalidError] with the name of the field.
func (f File) Validate() error {
	faults := f.Rules.faults()
	if len(f.Receivers) == 0 {
		faults = append(faults, invalid("receivers", "", "at least one is required"))
	}
	seen := make(map[string]bool)
	for i, r := range f.Receivers {
		field := fmt.Sprintf("receivers[%d].", i)
		for _, fault := range r.faults() {
			faults = append(faults, renamed(fault, field))
		}
		if seen[r.Name] {
			faults = append(faults, invalid(field+"name", r.Name, "must be given once"))
		}
		seen[r.Name] = true
	}
	return join(faults)
}
