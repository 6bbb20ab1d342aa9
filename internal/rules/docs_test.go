package rules_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A name in a document: package.Name or package.Type.Member. The package is the last element of its path, or one of
// packageAliases.
var qualifiedName = regexp.MustCompile(`\b([a-z]\w*)\.([A-Z]\w*)(?:\.([A-Z]\w*))?`)

// A name without its package: Type.Member, in backticks.
var memberName = regexp.MustCompile("`([A-Z]\\w*\\.[A-Z]\\w*)")

// A link of a document to another file, and a path of a package or a file in backticks.
var (
	codeBlock   = regexp.MustCompile("(?ms)^```.*?^```$") // where f[T](x) is a call
	link        = regexp.MustCompile(`\]\(([^)#:"]+)(?:#[^)]*)?\)`)
	packagePath = regexp.MustCompile(
		"`((?:ledger|outbox|workers|projector|migrations|internal|cmd|api|services|watermill)/[\\w/.*]+)`")
)

// packageAliases has the name under which docs/watermill.md imports a package.
var packageAliases = map[string]string{"ledgerwm": "watermill"}

// documented are the packages whose names documents use.
var documented = []string{
	"ledger", "ledger/feed", "ledger/stdsql", "ledger/periodic", "internal/seal",
	"internal/seal/sealer",
	"ledger/ledgertest", "outbox",
	"workers",
	"workers/workertest", "projector", "internal/health", "internal/alarm", "migrations",
	"api/client", "internal/api", "internal/console", "services", "metrics", "tracing",
}

// TestDocsNameWhatExists checks that the Go names, tests, files and links of the documents exist.
func TestDocsNameWhatExists(t *testing.T) {
	t.Parallel()
	docs, err := filepath.Glob(filepath.Join(repository, "docs", "*.md"))
	if err != nil || len(docs) == 0 {
		t.Fatalf("no documents: %v", err)
	}
	exported, tests := allExported(t), allTests(t)
	checked := 0
	for _, doc := range append([]string{"README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md",
		"CODE_OF_CONDUCT.md", "llms.txt"}, docs...) {
		doc = strings.TrimPrefix(doc, repository+"/")
		text := readDoc(t, doc)
		checked += checkNames(t, doc, text, exported)
		checkPaths(t, doc, text)
		for _, name := range testName.FindAllString(text, -1) {
			if !tests[name] {
				t.Errorf("%s: there is no %s", doc, name)
			}
		}
	}
	if checked < 100 {
		t.Errorf("only %d names were checked", checked)
	}
}

// checkNames reports the Go names of a document that no package has. It returns the number of names.
func checkNames(t *testing.T, doc, text string, exported map[string]map[string]bool) (checked int) {
	t.Helper()
	for _, m := range qualifiedName.FindAllStringSubmatch(text, -1) {
		names := exported[m[1]]
		if names == nil {
			continue
		}
		checked++
		if !names[m[2]] {
			t.Errorf("%s: %s has no %s", doc, m[1], m[2])
		} else if m[3] != "" && !names[m[2]+"."+m[3]] {
			t.Errorf("%s: %s.%s has no %s", doc, m[1], m[2], m[3])
		}
	}
	for _, m := range memberName.FindAllStringSubmatch(text, -1) {
		checked++
		if !isExported(exported, m[1]) {
			t.Errorf("%s: no package has %s", doc, m[1])
		}
	}
	return checked
}

// checkPaths reports the packages, files and links of a document that do not exist.
func checkPaths(t *testing.T, doc, text string) {
	t.Helper()
	check := func(dir string, found [][]string) {
		for _, m := range found {
			if matches, err := filepath.Glob(filepath.Join(repository, dir, m[1])); err != nil || len(matches) == 0 {
				t.Errorf("%s: there is no %s", doc, m[1])
			}
		}
	}
	check("", packagePath.FindAllStringSubmatch(text, -1))
	check(filepath.Dir(doc), link.FindAllStringSubmatch(codeBlock.ReplaceAllString(text, ""), -1))
}

// allExported returns the exported names of the documented packages, by the name of the package.
func allExported(t *testing.T) map[string]map[string]bool {
	t.Helper()
	exported := make(map[string]map[string]bool)
	for _, pkg := range documented {
		exported[path.Base(pkg)] = exportedNames(t, pkg)
	}
	for alias, pkg := range packageAliases {
		exported[alias] = exportedNames(t, pkg)
	}
	front := exportedNames(t, ".")
	exported["taskledger"] = front
	for name := range front { // documents also have variables client, of type taskledger.Client
		if member, ok := strings.CutPrefix(name, "Client."); ok {
			exported["client"][member] = true
		}
	}
	return exported
}

// allTests returns the names of the test functions of all packages.
func allTests(t *testing.T) map[string]bool {
	t.Helper()
	names := make(map[string]bool)
	err := filepath.WalkDir(repository, func(p string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		if p != repository && strings.HasPrefix(entry.Name(), ".") {
			return filepath.SkipDir
		}
		maps.Copy(names, testFunctions(t, strings.TrimPrefix(p, repository)))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// isExported reports whether a package has a name.
func isExported(exported map[string]map[string]bool, name string) bool {
	for _, names := range exported {
		if names[name] {
			return true
		}
	}
	return false
}

// exportedNames returns the exported names of a package: Name, and Type.Member for fields and methods.
func exportedNames(t *testing.T, pkg string) map[string]bool {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(repository, pkg, "*.go"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("package %s: %d files, %v", pkg, len(paths), err)
	}
	names := make(map[string]bool)
	for _, p := range paths {
		if strings.HasSuffix(p, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			maps.Copy(names, namesOf(d))
		}
	}
	return names
}

// namesOf returns the names that a declaration declares.
func namesOf(d ast.Decl) map[string]bool {
	names := make(map[string]bool)
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			names[d.Name.Name] = true
		} else {
			names[receiver(d.Recv.List[0].Type)+"."+d.Name.Name] = true
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					names[name.Name] = true
				}
			case *ast.TypeSpec:
				names[spec.Name.Name] = true
				for _, member := range members(spec.Type) {
					names[spec.Name.Name+"."+member] = true
				}
			}
		}
	}
	return names
}

// receiver returns the name of a receiver's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// members returns the fields of a struct or the methods of an interface.
func members(e ast.Expr) (names []string) {
	var fields *ast.FieldList
	switch e := e.(type) {
	case *ast.StructType:
		fields = e.Fields
	case *ast.InterfaceType:
		fields = e.Methods
	default:
		return nil
	}
	for _, field := range fields.List {
		for _, name := range field.Names {
			names = append(names, name.Name)
		}
	}
	return names
}

// Each table of a document begins with a header, so no blank line divides one.
func TestTablesBeginWithAHeader(t *testing.T) {
	t.Parallel()
	docs, err := filepath.Glob(filepath.Join(repository, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range docs {
		doc = strings.TrimPrefix(doc, repository+"/")
		lines := strings.Split(readDoc(t, doc), "\n")
		for i, line := range lines[:len(lines)-1] {
			isFirst := strings.HasPrefix(line, "|") && (i == 0 || !strings.HasPrefix(lines[i-1], "|"))
			if isFirst && !strings.HasPrefix(lines[i+1], "|---") {
				t.Errorf("%s:%d: a row without a header: %s", doc, i+1, line)
			}
		}
	}
}
