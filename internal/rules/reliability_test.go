package rules_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	repository = "../.."
	maxRows    = 60 // of docs/reliability.md
)

var (
	faultRow = regexp.MustCompile(`^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$`)
	testName = regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w+`)
)

// Each row of docs/reliability.md names a test. [TestDocsNameWhatExists] finds names that no package has.
func TestReliability(t *testing.T) {
	t.Parallel()
	rows := 0
	for line := range strings.Lines(readDoc(t, "docs/reliability.md")) {
		row := faultRow.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if row == nil || row[1] == "fault" || row[1] == "---" {
			continue
		}
		rows++
		if !testName.MatchString(row[3]) {
			t.Errorf("%q names no test", row[1])
		}
	}
	if rows < maxRows-10 || rows > maxRows {
		t.Errorf("docs/reliability.md has %d rows, want at most %d that a reader looks for", rows, maxRows)
	}
}

// testFunctions returns the names of the test functions of a package.
func testFunctions(t *testing.T, pkg string) map[string]bool {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(repository, pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]bool)
	for _, path := range paths {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				names[fn.Name.Name] = true
			}
		}
	}
	return names
}

// readDoc returns a document of the repository.
func readDoc(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
