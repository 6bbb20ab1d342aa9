package rules_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// The modules of the workspace compile for systems that no test runs on: on Windows without their tests, some of which
// send signals that Windows does not have. Types are checked from the sources, without a compiler, which would take
// minutes for the packages below.
func TestPlatforms(t *testing.T) {
	for _, p := range []struct {
		system, arch string
		isTested     bool
	}{
		{system: "windows", arch: "amd64"},
		{system: "darwin", arch: "arm64", isTested: true},
	} {
		t.Run(p.system, func(t *testing.T) {
			checkTypes(t, p.system, p.arch, p.isTested)
		})
	}
}

// source is the output of go list for a package that checkTypes checks.
type source struct {
	ImportPath string
	ImportMap  map[string]string
	Dir        string
	GoFiles    []string
	Module     *struct {
		Main      bool
		GoVersion string
	}
}

// checkTypes type-checks the workspace's packages, and of the packages below them the declarations.
func checkTypes(t *testing.T, system, arch string, isTested bool) {
	t.Helper()
	touchSources(t)
	command := exec.Command("go", "list", "-deps", "-test="+map[bool]string{true: "true", false: "false"}[isTested],
		"-json=ImportPath,ImportMap,Dir,GoFiles,Module", module+"/...")
	command.Env = append(inWorkspace(t), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0")
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	all := map[string]*types.Package{"unsafe": types.Unsafe}
	files := token.NewFileSet()
	checked := 0
	// A package comes behind those that it imports.
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p source
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if p.ImportPath == "unsafe" || strings.HasSuffix(p.ImportPath, ".test") { // the latter is generated
			continue
		}
		isOurs := p.Module != nil && p.Module.Main
		config := types.Config{
			IgnoreFuncBodies: !isOurs,
			Sizes:            types.SizesFor("gc", arch),
			Importer: importerFunc(func(path string) (*types.Package, error) {
				if mapped, ok := p.ImportMap[path]; ok {
					path = mapped
				}
				if imported := all[path]; imported != nil {
					return imported, nil
				}
				return nil, errors.New(path + " is not listed")
			}),
			Error: func(err error) {
				if isOurs {
					t.Error(err)
				}
			},
		}
		if isOurs {
			config.GoVersion = "go" + p.Module.GoVersion
			checked++
		}
		// The errors are those that Error got. A package with errors can still be imported.
		all[p.ImportPath], _ = config.Check(p.ImportPath, files, parse(t, files, p, isOurs), nil)
	}
	if checked < 50 {
		t.Errorf("%d packages of the module were checked", checked)
	}
}

// parse parses the files of p, several at once.
func parse(t *testing.T, files *token.FileSet, p source, isOurs bool) []*ast.File {
	t.Helper()
	parsed := make([]*ast.File, len(p.GoFiles))
	var group sync.WaitGroup
	limit := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, name := range p.GoFiles {
		group.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			file, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil && isOurs {
				t.Error(err)
			}
			parsed[i] = file
		})
	}
	group.Wait()
	return parsed
}

type importerFunc func(path string) (*types.Package, error)

func (f importerFunc) Import(path string) (*types.Package, error) { return f(path) }
