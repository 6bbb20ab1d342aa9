package main

import (
	"strconv"
	"strings"
)

// kilobytes returns the number in a line such as "VmRSS:   1234 kB" of a file in /proc, or 0.
func kilobytes(text, name string) int {
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) >= 2 && fields[0] == name {
			n, _ := strconv.Atoi(fields[1])
			return n
		}
	}
	return 0
}
