package rules_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// root is the path of the module's root from this package.
const root = "../.."

// trackedFiles returns the paths, from the module's root, of the files to which the rules apply: all that
// git tracks or would track. Outside a checkout these are all files.
func trackedFiles(t *testing.T) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !entry.IsDir():
			all = append(all, filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator))))
		case path != root && strings.HasPrefix(entry.Name(), "."):
			return filepath.SkipDir
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z")
	command.Dir = root
	if out, err := command.Output(); err == nil {
		tracked := make(map[string]bool)
		for path := range strings.SplitSeq(string(out), "\x00") {
			tracked[path] = true
		}
		all = slices.DeleteFunc(all, func(path string) bool { return !tracked[path] })
	}
	if len(all) < 300 {
		t.Fatalf("got %d files, want the whole tree", len(all))
	}
	return all
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
