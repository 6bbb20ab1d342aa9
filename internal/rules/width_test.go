package rules_test

import (
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	maxWidth = 120
	tabWidth = 4
)

// TestLineWidth keeps lines of Go and SQL within 120 columns.
func TestLineWidth(t *testing.T) {
	t.Parallel()
	for _, path := range trackedFiles(t) {
		if ext := filepath.Ext(path); ext != ".go" && ext != ".sql" || filepath.Base(path) == "schema.sql" {
			continue
		}
		for i, line := range readLines(t, path) {
			if isExempt(line) {
				continue
			}
			if n := utf8.RuneCountInString(line) + (tabWidth-1)*strings.Count(line, "\t"); n > maxWidth {
				t.Errorf("%s:%d has %d columns", path, i+1, n)
			}
		}
	}
}

// isExempt reports whether a line cannot be wrapped: the output of an Example, or a URL.
func isExempt(line string) bool {
	line = strings.TrimSpace(line)
	return strings.HasPrefix(line, "// ") && (strings.Contains(line, "://") || strings.Contains(line, `{"`))
}
