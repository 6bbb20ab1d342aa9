package alarm

import (
	"fmt"

	"github.com/taskledger/taskledger/internal/settings"
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
	if err := settings.Decode("alarms", text, &f); err != nil {
		return f, err
	}
	return f, f.Validate()
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
