package main

import (
	"os"
	"strings"
)

// diskOf returns device and type of the file system of a directory.
func diskOf(dir string) string {
	mounts, _ := os.ReadFile("/proc/mounts")
	var mount, disk string
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if len(f) < 3 || len(f[1]) < len(mount) {
			continue
		}
		if f[1] == "/" || dir == f[1] || strings.HasPrefix(dir, f[1]+"/") {
			mount, disk = f[1], f[0]+" ("+f[2]+")"
		}
	}
	return disk
}
