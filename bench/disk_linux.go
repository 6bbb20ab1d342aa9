package main

import (
	"os"
	"strings"
)

// diskOf names the file system that a directory is on.
func diskOf(dir string) string {
	mounts, _ := os.ReadFile("/proc/mounts")
	var longest, found string
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if len(f) < 3 || len(f[1]) < len(longest) {
			continue
		}
		if f[1] == "/" || dir == f[1] || strings.HasPrefix(dir, f[1]+"/") {
			longest, found = f[1], f[0]+" ("+f[2]+")"
		}
	}
	return found
}
