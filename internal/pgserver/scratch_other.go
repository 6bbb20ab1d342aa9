//go:build !linux

package pgserver

import "os"

// scratch returns where the directory of a temporary server goes.
func scratch() string { return os.TempDir() }
