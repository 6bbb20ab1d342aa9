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
	mount := exec.Command("mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%d,mode=0700", bytes), "tmpfs", dir)
	if out, err := mount.CombinedOutput(); err != nil {
		t.Skipf("SKIPPED without a small disk: mount: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", "-l", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return dir
}
