package rules_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// docLink is a link of a comment: to a name of its package, or to one of a package whose name it contains.
var docLink = regexp.MustCompile(`(?:^|[\s(])\[\*?([A-Z]\w+(?:\.\w+)?|[a-z]\w*\.[A-Z]\w*(?:\.\w+)?)\](?:[^(\w:\[]|$)`)

// goPackage is a package of the repository, without its tests.
type goPackage struct {
	files map[string]*ast.File
	names map[string]bool
}

// The links of comments name what exists. A name that has moved to another package needs that package's name.
func TestLinksInComments(t *testing.T) {
	t.Parallel()
	all := make(map[string]*goPackage)
	err := filepath.WalkDir(repository, func(p string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && p != repository && (entry.Name()[0] == '.' || entry.Name() == "testdata"):
			return filepath.SkipDir
		case !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		pkg := all[filepath.Dir(p)]
		if pkg == nil {
			pkg = &goPackage{make(map[string]*ast.File), make(map[string]bool)}
			all[filepath.Dir(p)] = pkg
		}
		pkg.files[p] = f
		for _, d := range f.Decls {
			maps.Copy(pkg.names, namesOf(d))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	byName := make(map[string]map[string]bool)
	for _, pkg := range all {
		for _, f := range pkg.files {
			if byName[f.Name.Name] == nil {
				byName[f.Name.Name] = make(map[string]bool)
			}
			maps.Copy(byName[f.Name.Name], pkg.names)
		}
	}
	links := 0
	for _, pkg := range all {
		for file, f := range pkg.files {
			for _, group := range f.Comments {
				text := group.Text()
				for _, m := range docLink.FindAllStringSubmatch(text, -1) {
					links++
					of, name, _ := strings.Cut(m[1], ".")
					isElsewhere := byName[of] == nil && !ast.IsExported(of) // in another module
					isDefined := strings.Contains(text, "["+m[1]+"]: ")
					if !pkg.names[m[1]] && !byName[of][name] && !isElsewhere && !isDefined {
						t.Errorf("%s: a comment links to %s, which does not exist", file, m[1])
					}
				}
			}
		}
	}
	if links < 1000 {
		t.Errorf("only %d links were checked", links)
	}
}
