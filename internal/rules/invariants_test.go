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
	minRows    = 80 // of docs/invariants.md
)

var (
	headingOfInvariants = regexp.MustCompile("^## `([^`]+)`$")
	invariantRow        = regexp.MustCompile(`^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$`)
	inBackticks         = regexp.MustCompile("`([^`]+)`")
	testName            = regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w+`)
)

// TestInvariants checks that the files and tests which docs/invariants.md names exist.
func TestInvariants(t *testing.T) {
	t.Parallel()
	testsOf := make(map[string]map[string]bool)
	rows := 0
	pkg := ""
	for line := range strings.Lines(readDoc(t, "docs/invariants.md")) {
		line = strings.TrimSuffix(line, "\n")
		if m := headingOfInvariants.FindStringSubmatch(line); m != nil {
			pkg = m[1]
		}
		row := invariantRow.FindStringSubmatch(line)
		if row == nil || row[1] == "invariant" {
			continue
		}
		rows++
		files := inBackticks.FindAllStringSubmatch(row[2], -1)
		if len(files) == 0 {
			t.Errorf("%q names no file", row[1])
		}
		for _, file := range files {
			if _, err := os.Stat(filepath.Join(repository, file[1])); err != nil {
				t.Errorf("%q: %v", row[1], err)
			}
		}
		for part := range strings.SplitSeq(row[3], "; ") {
			in := pkg
			if m := inBackticks.FindStringSubmatch(part); m != nil {
				in = m[1]
			}
			if testsOf[in] == nil {
				testsOf[in] = testFunctions(t, in)
			}
			names := testName.FindAllString(part, -1)
			if len(names) == 0 {
				t.Errorf("%q names no test in %q", row[1], part)
			}
			for _, name := range names {
				if !testsOf[in][name] {
					t.Errorf("%q: %s has no %s", row[1], in, name)
				}
			}
		}
	}
	if rows < minRows {
		t.Errorf("%d rows were read, want at least %d", rows, minRows)
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
