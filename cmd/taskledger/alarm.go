package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/internal/alarm"
	"github.com/taskledger/taskledger/ledger"
)

// addAlarmsFlag adds --alarms, the file with the rules and the receivers of alarms.
func addAlarmsFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "alarms", "", "`file` with rules and receivers of alarms: docs/alarms.md")
	bind(cmd.Flags(), "alarms", "TASKLEDGER_ALARMS")
}

// readAlarms reads a file of alarms, and returns it as JSON too: nil if file is "".
func readAlarms(a *app, file string) (f alarm.File, text []byte, err error) {
	if file == "" {
		return f, nil, nil
	}
	if text, err = a.readJSON(file); err != nil {
		return f, nil, err
	}
	f, err = alarm.Parse(text)
	return f, text, err
}

func listAlarms(ctx context.Context, a *app, pool *pgxpool.Pool, f showFlags) error {
	alarms, hasMore, err := alarm.ReadAlarms(ctx, pool, f.limit)
	if err != nil {
		return err
	}
	value := struct {
		Alarms []alarm.Alarm `json:"alarms"`
		More   bool          `json:"more,omitempty"` // there are older ones
	}{append([]alarm.Alarm{}, alarms...), hasMore}
	if err := printList(a, value, alarms, func(w io.Writer) {
		if len(alarms) == 0 {
			return
		}
		t := newTable([]any{"alarm", "state", "made", "attempts", "subject", "error"}, 4)
		for _, l := range alarms {
			t.AppendRow(table.Row{
				plain(string(l.Task.BizID)), l.State, ago(l.MadeAt), l.Attempt,
				shorten(l.Subject, 70), shorten(l.Error, 70),
			})
		}
		renderTable(w, t)
	}); err != nil {
		return err
	}
	if len(alarms) == 0 {
		fmt.Fprintln(a.stderr, "no alarms")
	}
	if hasMore && a.config.output != formatJSON {
		fmt.Fprintf(a.stderr, "there are older ones: raise --limit, or: taskledger show tasks --kind %s\n", alarm.Kind)
	}
	return nil
}

func newTestAlarmsCommand(a *app) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "alarms [RECEIVER...]",
		Short: "Send a test alarm",
		Long: `Send a test alarm to the named receivers, or to all receivers of the file, and show the results. Each
delivery is tried once. The exit code is 1 if a delivery fails.`,
		Example: "  taskledger test alarms --alarms alarms.yaml\n  taskledger test alarms --alarms alarms.yaml pager",
		RunE: func(cmd *cobra.Command, names []string) error {
			if file == "" {
				return usagef("%s: --alarms is required", cmd.CommandPath()).hinted("set --alarms or TASKLEDGER_ALARMS")
			}
			f, _, err := readAlarms(a, file)
			if err != nil {
				return err
			}
			receivers, err := findReceivers(f.Receivers, names)
			if err != nil {
				return err
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, db *pgxpool.Pool) error {
				return testAlarms(ctx, a, db, receivers)
			})
		},
	}
	addAlarmsFlag(cmd, &file)
	return cmd
}

// findReceivers returns the receivers with these names, or all if there are no names.
func findReceivers(all []alarm.Receiver, names []string) (found []alarm.Receiver, err error) {
	if len(names) == 0 {
		return all, nil
	}
	for _, name := range names {
		i := slices.IndexFunc(all, func(r alarm.Receiver) bool { return r.Name == name })
		if i < 0 {
			return nil, failf(exitNotFound, "the file has no receiver %s", name)
		}
		found = append(found, all[i])
	}
	return found, nil
}

func testAlarms(ctx context.Context, a *app, db *pgxpool.Pool, receivers []alarm.Receiver) error {
	var tests []alarm.TestResult
	failed := 0
	for _, r := range receivers {
		t, err := alarm.Test(ctx, db, r)
		if err != nil {
			return err
		}
		if t.State != ledger.StateSucceeded {
			failed++
		}
		tests = append(tests, t)
	}
	value := struct {
		Tests []alarm.TestResult `json:"tests"`
	}{tests}
	if err := printList(a, value, tests, func(w io.Writer) {
		for _, t := range tests {
			if t.State == ledger.StateSucceeded {
				fmt.Fprintf(w, "%s is delivered\n", plain(string(t.Alarm)))
			} else {
				fmt.Fprintf(w, "%s is %s: %s\n", plain(string(t.Alarm)), t.State, plain(t.Error))
			}
		}
	}); err != nil {
		return err
	}
	if failed > 0 {
		return failf(exitFailed, "%d of %d deliveries failed", failed, len(receivers))
	}
	return nil
}
