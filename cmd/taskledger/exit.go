package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Exit codes. Scripts rely on them: they never change.
const (
	exitOK           = 0
	exitFailed       = 1
	exitUsage        = 2
	exitNotFound     = 3
	exitConflict     = 4
	exitUnavailable  = 5
	exitNotMigrated  = 6
	exitIntegrity    = 7
	exitTimeout      = 8
	exitUnsuccessful = 9
)

// exitCodes describes the exit codes, with the name that errors have in JSON.
var exitCodes = []struct {
	exit int
	code string
	doc  string
}{
	{exitOK, "ok", "done"},
	{exitFailed, "failed", "any failure without a code of its own"},
	{exitUsage, "usage", "wrong command line or invalid input; nothing was done"},
	{exitNotFound, "not_found", "no such task, schedule, subscriber or event"},
	{exitConflict, "conflict", "it exists and differs, or is taken; nothing was changed"},
	{exitUnavailable, "unavailable",
		"PostgreSQL, NATS or an archive cannot be reached, or refuses credentials or rights"},
	{exitNotMigrated, "not_migrated", "the database lacks the schema of this version"},
	{exitIntegrity, "integrity", "the ledger or its stream is damaged: a person must act"},
	{exitTimeout, "timeout", "the time to wait for a task is up; the task runs on"},
	{exitUnsuccessful, "unsuccessful", "the task that was waited for is dead, cancelled, expired or discarded"},
}

// codeOverloaded is the name in JSON of an enqueue that a limit has rejected. Its exit code is exitConflict.
const codeOverloaded = "overloaded"

// codeName returns the name of an exit code in JSON.
func codeName(exit int) string { return exitCodes[exit].code }

// newExitCodesTopic returns the topic of `taskledger help exit-codes`.
func newExitCodesTopic() *cobra.Command {
	var b strings.Builder
	b.WriteString("taskledger ends with one of these exit codes; the name is error.code in JSON:\n\n")
	for _, c := range exitCodes {
		fmt.Fprintf(&b, "  %d  %-13s %s\n", c.exit, c.code, c.doc)
	}
	fmt.Fprintf(&b, "\nIf a limit rejects an enqueue, the exit code is %d and error.code is %s. Then\n"+
		"error.retry_after_ms is the delay in ms before the next try.\n", exitConflict, codeOverloaded)
	return &cobra.Command{Use: "exit-codes", Short: "Show the exit codes and their meaning",
		Long: strings.TrimRight(b.String(), "\n")}
}
