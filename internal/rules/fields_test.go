package rules_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"strings"
	"testing"
)

// maxPositional is how many fields an element of a test table may have without their names.
const maxPositional = 2

// TestFieldNames checks that the elements of a test table name their fields.
func TestFieldNames(t *testing.T) {
	t.Parallel()
	packages := make(map[string][]*ast.File)
	files := token.NewFileSet()
	for _, name := range trackedFiles(t) {
		if strings.HasSuffix(name, ".go") {
			f, err := parser.ParseFile(files, name, readFile(t, name), parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			packages[path.Dir(name)] = append(packages[path.Dir(name)], f)
		}
	}
	tables := 0
	for _, sources := range packages {
		structs := structsOf(sources)
		for _, f := range sources {
			if !strings.HasSuffix(files.Position(f.Pos()).Filename, "_test.go") {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				table, ok := n.(*ast.CompositeLit)
				if !ok || !isTable(table, structs) {
					return true
				}
				tables++
				for _, element := range table.Elts {
					if row := rowOf(element); row != nil && isPositional(row) {
						t.Errorf("%s: an element of a test table has %d fields without names",
							files.Position(row.Pos()), len(row.Elts))
					}
				}
				return true
			})
		}
	}
	if tables < 10 {
		t.Errorf("only %d test tables were read", tables)
	}
}

// structsOf returns the names of the struct types that the sources declare, also within functions.
func structsOf(sources []*ast.File) map[string]bool {
	names := make(map[string]bool)
	for _, f := range sources {
		ast.Inspect(f, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if _, ok := spec.Type.(*ast.StructType); ok {
					names[spec.Name.Name] = true
				}
			}
			return true
		})
	}
	return names
}

// isTable reports whether a literal is a slice, an array or a map of structs of this package.
func isTable(literal *ast.CompositeLit, structs map[string]bool) bool {
	var element ast.Expr
	switch typ := literal.Type.(type) {
	case *ast.ArrayType:
		element = typ.Elt
	case *ast.MapType:
		element = typ.Value
	}
	if pointer, ok := element.(*ast.StarExpr); ok {
		element = pointer.X
	}
	switch element := element.(type) {
	case *ast.StructType:
		return true
	case *ast.Ident:
		return structs[element.Name]
	}
	return false
}

// rowOf returns the literal of one element of a table, nil if it is another expression.
func rowOf(element ast.Expr) *ast.CompositeLit {
	if pair, ok := element.(*ast.KeyValueExpr); ok {
		element = pair.Value
	}
	if address, ok := element.(*ast.UnaryExpr); ok {
		element = address.X
	}
	row, _ := element.(*ast.CompositeLit)
	return row
}

func isPositional(row *ast.CompositeLit) bool {
	if len(row.Elts) <= maxPositional {
		return false
	}
	_, isNamed := row.Elts[0].(*ast.KeyValueExpr)
	return !isNamed
}

// TestIsPositional checks which literals TestFieldNames reports.
func TestIsPositional(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]int{
		`[]struct{ a, b, c int }{{1, 2, 3}, {a: 1, b: 2, c: 3}}`: 1,
		`map[string]struct{ a, b, c int }{"x": {1, 2, 3}}`:       1,
		`[]*row{{1, 2, 3}, &row{1, 2, 3}, nil}`:                  2,
		`[]struct{ a, b int }{{1, 2}}`:                           0,
		`[][]int{{1, 2, 3}}`:                                     0,
		`[]other{{1, 2, 3}}`:                                     0,
	} {
		e, err := parser.ParseExpr(source)
		if err != nil {
			t.Fatal(err)
		}
		table, ok := e.(*ast.CompositeLit)
		if !ok {
			t.Fatal(fmt.Errorf("%s is not a literal", source))
		}
		got := 0
		if isTable(table, map[string]bool{"row": true}) {
			for _, element := range table.Elts {
				if row := rowOf(element); row != nil && isPositional(row) {
					got++
				}
			}
		}
		if got != want {
			t.Errorf("%s: %d elements reported, want %d", source, got, want)
		}
	}
}
