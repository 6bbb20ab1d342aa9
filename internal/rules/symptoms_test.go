package rules_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// rowOfSymptom is a row of docs/troubleshooting.md with its first cell.
	rowOfSymptom = regexp.MustCompile(`(?m)^\| ([^|]+) \|`)
	quoted       = regexp.MustCompile("`([^`]+)`")
	verb         = regexp.MustCompile(`%[svdq]`)
)

// The messages and conditions that docs/troubleshooting.md quotes are those of the product: a reader searches for them.
func TestQuotedSymptoms(t *testing.T) {
	t.Parallel()
	var sources strings.Builder
	for _, file := range trackedFiles(t) {
		isSource := filepath.Ext(file) == ".go" && !strings.HasSuffix(file, "_test.go")
		if isSource && !strings.HasPrefix(file, "bench/") || filepath.Ext(file) == ".sql" {
			sources.WriteString(verb.ReplaceAllString(readFile(t, file), "…"))
		}
	}
	known, n := sources.String(), 0
	for _, row := range rowOfSymptom.FindAllStringSubmatch(readDoc(t, "docs/troubleshooting.md"), -1) {
		for _, m := range quoted.FindAllStringSubmatch(row[1], -1) {
			n++
			if m[1] != "permission denied for" && !strings.Contains(known, m[1]) { // PostgreSQL's
				t.Errorf("no message or condition contains %q", m[1])
			}
		}
	}
	if n < 20 {
		t.Errorf("only %d messages were found", n)
	}
}
