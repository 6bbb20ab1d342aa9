package rules_test

import (
	"bytes"
	"flag"
	"go/ast"
	"go/build"
	"go/doc"
	"go/parser"
	"go/printer"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/difference"
)

var update = flag.Bool("update", false, "rewrite testdata/api.txt")

// goldenAPI has the exported declarations of all packages that users may import.
const goldenAPI = "testdata/api.txt"

// The exported Go API is the one committed, so that a review sees what a change means for users: `make api`.
func TestGoAPI(t *testing.T) {
	t.Parallel()
	var got strings.Builder
	got.WriteString("The exported Go API, written by `make api`. docs/compatibility.md has what 1.x keeps of it.\n")
	files := map[string][]string{} // of each directory
	for _, file := range trackedFiles(t) {
		if strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, "_test.go") && isPublic(file) {
			files[path.Dir(file)] = append(files[path.Dir(file)], file)
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(files)) {
		got.WriteString(exported(t, dir, files[dir]))
	}
	if *update {
		if err := os.WriteFile(goldenAPI, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(goldenAPI)
	if err != nil {
		t.Fatal(err)
	}
	if diff := difference.Of(strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")); diff != "" {
		t.Errorf("the API is not the committed one (-committed, +now); if that is meant: make api\n%s", diff)
	}
}

// The list has what a user sees and nothing else.
func TestGoAPIHasWhatIsExported(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const source = `package p
import "context"
const A, b = 1, 2
var hidden = 3
type T[E any] struct { N int ` + "`json:\"n\"`" + `; n int; M map[string]int }
func (T[E]) Do(ctx context.Context, f func(E) error) (n int, err error) { return 0, nil }
func (T[E]) do() {}
type I interface { Do(); do() }
type u struct{}
func (u) Do() {}
func F() *T[int] { return nil }`
	if err := os.WriteFile(filepath.Join(dir, "p.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	const want = `
package p
const A, _ = 1, 2
type I interface {
	Do()
	// contains filtered or unexported methods
}
type T[E any] struct {
	N	int	` + "`json:\"n\"`" + `
	M	map[string]int
	// contains filtered or unexported fields
}
func F() *T[int]
func (T[E]) Do(ctx context.Context, f func(E) error) (n int, err error)
`
	if diff := difference.Of(want, listing(t, dir, "p", []string{filepath.Join(dir, "p.go")})); diff != "" {
		t.Error(diff)
	}
}

// isPublic reports whether a file may be part of a package that users import.
func isPublic(file string) bool {
	for part := range strings.SplitSeq(path.Dir(file), "/") {
		switch part {
		case "internal", "testdata", "cmd", "bench", "deploy", "examples":
			return false
		}
	}
	return true
}

// exported returns the exported declarations of the package in a directory of this module, as on Linux.
func exported(t *testing.T, dir string, files []string) string {
	t.Helper()
	linux := build.Default
	linux.GOOS, linux.GOARCH = "linux", "amd64"
	var built []string
	for _, file := range files {
		full := filepath.Join(root, file)
		if ok, err := linux.MatchFile(filepath.Split(full)); err != nil {
			t.Fatal(err)
		} else if ok {
			built = append(built, full)
		}
	}
	return listing(t, dir, strings.Replace(dir, ".", "taskledger", 1), built)
}

// listing returns the exported declarations of files.
func listing(t *testing.T, dir, name string, paths []string) string {
	t.Helper()
	set := token.NewFileSet()
	var files []*ast.File
	for _, file := range paths {
		f, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	p, err := doc.NewFromFiles(set, files, "github.com/taskledger/taskledger/"+dir)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	b.WriteString("\npackage " + name + "\n")
	write := func(d ast.Decl) {
		var text strings.Builder
		if err := (&printer.Config{Mode: printer.RawFormat, Tabwidth: 4}).Fprint(&text, set, d); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(text.String() + "\n") { // without alignment, which changes with other lines
			if line != "\n" {
				indent := line[:len(line)-len(strings.TrimLeft(line, "\t"))]
				b.WriteString(indent + strings.ReplaceAll(strings.TrimLeft(line, "\t"), "\t\t", "\t"))
			}
		}
	}
	values := func(list []*doc.Value) {
		for _, v := range list {
			write(v.Decl)
		}
	}
	functions := func(list []*doc.Func) {
		for _, f := range list {
			write(f.Decl)
		}
	}
	values(p.Consts)
	values(p.Vars)
	functions(p.Funcs)
	for _, t := range p.Types {
		write(t.Decl)
		values(t.Consts)
		values(t.Vars)
		functions(t.Funcs)
		functions(t.Methods)
	}
	return b.String()
}
