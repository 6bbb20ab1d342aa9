//go:build !linux

package main

// diskOf knows only Linux.
func diskOf(string) string { return "" }
