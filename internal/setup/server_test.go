package main

import (
	"os"
	"os/exec"
	"testing"

	"github.com/jackc/pgx/v5"
)

// A command that has a server connects to it. The command is this test, in a process of its own.
func TestCommandHasAServer(t *testing.T) {
	const child = "TASKLEDGER_SETUP_CHILD"
	if os.Getenv(child) == "" {
		command := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		t.Setenv(child, "1")
		if err := (setup{out: t.Output()}).runWithServer(t.Context(), command); err != nil {
			t.Error(err)
		}
		return
	}
	conn, err := pgx.Connect(t.Context(), os.Getenv(addressVariable))
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
