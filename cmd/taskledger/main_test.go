package main

import (
	"log"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/longtest"
)

// patience bounds what normally takes milliseconds.
const patience = 30 * time.Second

// programName is the name of the program in the path.
const programName = "taskledger"

// TestMain puts this test binary into the path as the program. Under its name it is the program, with each command as
// its role: see [mainAs]. The scripts in testdata run by internal/systemtest/script, on the same program.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == programName {
		mainAs()
		return
	}
	os.Exit(withProgram(func() int { return longtest.Run(m) }))
}

// withProgram calls run with this binary in the path as the program.
func withProgram(run func() int) int {
	self, err := os.Executable()
	if err != nil {
		log.Panic(err)
	}
	dir, err := os.MkdirTemp(filepath.Dir(self), "program-") // on the file system of self
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	// It is not a symbolic link, since processes read their own path.
	if err := os.Link(self, filepath.Join(dir, programName)); err != nil {
		log.Panic(err)
	}
	if err := os.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH")); err != nil {
		log.Panic(err)
	}
	return run()
}
