package systemtest_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// clientCores are the files of each package that speak the work protocol. Next to them are the calls of producers,
// adapters of drivers, SQL, OpenTelemetry and tests.
var clientCores = map[string][]string{
	"../../clients/node/src":              {"api.ts", "finishes.ts", "job.ts", "log.ts", "worker.ts"},
	"../../clients/python/src/taskledger": {"_finishes.py", "_http.py", "_job.py", "_worker.py"},
}

// The core of a client has at most 600 lines, without comments and empty lines.
func TestClientCoresAreThin(t *testing.T) {
	t.Parallel()
	const most = 600
	documentation := regexp.MustCompile(`(?s)"""(?:[^\n]*?"""|.*?\n\s*""")\n|/\*.*?\*/`)
	for dir, files := range clientCores {
		n := 0
		for _, name := range files {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(documentation.ReplaceAllString(string(text), "")) {
				line = strings.TrimSpace(line)
				if line != "" && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "//") {
					n++
				}
			}
		}
		if n > most || n < 300 {
			t.Errorf("%s has %d lines, want at most %d", dir, n, most)
		}
	}
}
