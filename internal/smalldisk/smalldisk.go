// Package smalldisk mounts small disks for tests.
package smalldisk

import (
	"fmt"
	"os/exec"
	"testing"
)

// Mount mounts a file system of a number of bytes in memory, until the test ends, and returns its directory. It skips
// the test where mounting is refused: it needs root on Linux.
func Mount(t *testing.T, bytes int64) string {
	t.Helper()
	dir := t.TempDir()
	unmount, err := At(dir, bytes)
	if err != nil {
		t.Skipf("SKIPPED without a small disk: %v", err)
	}
	t.Cleanup(func() {
		if err := unmount(); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// At mounts a file system of a number of bytes in memory at a directory, until unmount is called. Other users may pass
// through the directory. It returns an error where mounting is refused: it needs root on Linux.
func At(dir string, bytes int64) (unmount func() error, err error) {
	err = run("mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%d,mode=0711", bytes), "tmpfs", dir)
	return func() error { return run("umount", "-l", dir) }, err
}

func run(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}
