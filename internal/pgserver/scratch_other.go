//go:build !linux

package pgserver

import "os"

// scratch returns the parent directory of temporary servers.
func scratch() string { return os.TempDir() }
