package webhooks

import (
	"errors"
	"fmt"

	"github.com/taskledger/taskledger/internal/settings"
	"github.com/taskledger/taskledger/ledger"
)

// File is the content of a file of webhooks.
type File struct {
	Receivers []Receiver `json:"receivers"`
}

// Parse parses a [File] in JSON and validates it. It reports every fault at once, each an [*ledger.InvalidError] with
// the name of the field. It validates secrets, see [Receiver.Validate].
func Parse(text []byte) (f File, err error) {
	if err := settings.Decode("webhooks", text, &f); err != nil {
		return f, err
	}
	return f, f.Validate()
}

// Validate reports every fault at once, each an [*ledger.InvalidError] with the name of the field.
func (f File) Validate() error {
	var faults []error
	if len(f.Receivers) == 0 {
		faults = append(faults, &ledger.InvalidError{Field: "receivers", Rule: "at least one is required"})
	}
	seen := make(map[string]bool)
	for i, r := range f.Receivers {
		field := fmt.Sprintf("receivers[%d].", i)
		for _, fault := range r.faults() {
			faults = append(faults, settings.Below(field, fault))
		}
		if seen[r.Name] {
			fault := &ledger.InvalidError{Field: field + "name", Value: r.Name, Rule: "must be given once"}
			faults = append(faults, fault)
		}
		seen[r.Name] = true
	}
	return errors.Join(faults...)
}
