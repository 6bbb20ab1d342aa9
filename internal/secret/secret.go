// Package secret reads secrets from files and environment variables, which a configuration names.
package secret

import (
	"fmt"
	"os"
	"strings"

	"github.com/taskledger/taskledger/ledger"
)

// Read returns the content of a file or of an environment variable, without white space around it.
func Read(file, variable string) (string, error) {
	if variable != "" {
		return strings.TrimSpace(os.Getenv(variable)), nil
	}
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	return strings.TrimSpace(string(text)), err
}

// Faults returns why a secret cannot be read, each an [*ledger.InvalidError]. name is the prefix of its fields.
func Faults(name, file, variable string) []error {
	text, err := Read(file, variable)
	fault := func(field, value, rule string) []error {
		return []error{&ledger.InvalidError{Field: name + field, Value: value, Rule: rule}}
	}
	switch {
	case file != "" && variable != "":
		return fault("_file", file, fmt.Sprintf("must not be set together with %s_env", name))
	case err != nil:
		return fault("_file", file, fmt.Sprintf("must be a readable file: %s", err))
	case variable != "" && text == "":
		return fault("_env", variable, "must be a variable that is set")
	case file != "" && text == "":
		return fault("_file", file, "must not be an empty file")
	}
	return nil
}
