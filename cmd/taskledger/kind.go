package main

import (
	"context"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers/operator"
)

func newKindCommand(a *app) *cobra.Command {
	return group(
		&cobra.Command{Use: "kind", Short: "Pause and resume kinds"},
		newKindPauseCommand(a),
		newKindResumeCommand(a),
		newKindListCommand(a),
	)
}

func newKindPauseCommand(a *app) *cobra.Command {
	var audit operator.Audit
	cmd := &cobra.Command{
		Use:   "pause KIND",
		Short: "Pause a kind: no worker begins its tasks",
		Long: `Pause a kind: no worker begins its tasks until it is resumed, including workers that start later.
It takes effect within two seconds. Running handlers continue, and tasks can be enqueued as usual.`,
		Example: "  taskledger kind pause coupon.send --reason 'partner is down'",
		Args:    exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			audit.Actor = actorOr(audit.Actor)
			return a.changeKind(cmd.Context(), args[0], "paused",
				func(ctx context.Context, o *operator.Operator) (bool, error) {
					return o.PauseKind(ctx, ledger.Kind(args[0]), audit)
				})
		},
	}
	addActorFlag(cmd, &audit.Actor)
	cmd.Flags().StringVar(&audit.Reason, "reason", "", "reason, for the list of kinds")
	return cmd
}

func newKindResumeCommand(a *app) *cobra.Command {
	var audit operator.Audit
	cmd := &cobra.Command{
		Use:     "resume KIND",
		Short:   "Resume a kind: workers begin its tasks again",
		Example: "  taskledger kind resume coupon.send",
		Args:    exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			audit.Actor = actorOr(audit.Actor)
			return a.changeKind(cmd.Context(), args[0], "resumed",
				func(ctx context.Context, o *operator.Operator) (bool, error) {
					return o.ResumeKind(ctx, ledger.Kind(args[0]), audit)
				})
		},
	}
	addActorFlag(cmd, &audit.Actor)
	cmd.Flags().StringVar(&audit.Reason, "reason", "", "reason, for the record of the act")
	return cmd
}

// changeKind pauses or resumes a kind, and reports whether that was a change.
func (a *app) changeKind(ctx context.Context, kind, done string,
	change func(context.Context, *operator.Operator) (bool, error)) error {
	return a.withDatabase(ctx, func(ctx context.Context, pool *pgxpool.Pool) error {
		o, err := operator.New(operator.Config{DB: pool})
		if err != nil {
			return err
		}
		changed, err := change(ctx, o)
		if err != nil {
			return err
		}
		answer := struct {
			Kind    string `json:"kind"`
			Changed bool   `json:"changed"`
		}{kind, changed}
		return a.print(answer, func(w io.Writer) {
			if changed {
				fmt.Fprintf(w, "%s %s\n", done, plain(kind))
			} else {
				fmt.Fprintf(w, "%s was %s already; taskledger kind list has the reason\n", plain(kind), done)
			}
		})
	})
}

func newKindListCommand(a *app) *cobra.Command {
	var f pageFlags
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the kinds that are paused",
		Example: "  taskledger kind list\n  taskledger kind list -o json",
		Args:    exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.validate(); err != nil {
				return err
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				return listPausedKinds(ctx, a, pool, f)
			})
		},
	}
	f.add(cmd, "kinds")
	return cmd
}

func listPausedKinds(ctx context.Context, a *app, pool *pgxpool.Pool, f pageFlags) error {
	paused, next, err := readPage(ctx, pool, f, operator.ReadPausedAfter,
		func(k operator.PausedKind) ledger.Kind { return k.Kind })
	if err != nil {
		return err
	}
	list := struct {
		Paused []operator.PausedKind `json:"paused"`
		Next   ledger.Kind           `json:"next,omitempty"`
	}{paused, next}
	if err := printList(a, list, paused, func(w io.Writer) {
		if len(paused) == 0 {
			return
		}
		t := newTable([]any{"paused kind", "since", "by", "reason"}, 4)
		for _, k := range paused {
			t.AppendRow(table.Row{plain(string(k.Kind)), ago(k.Since), plain(k.Actor), plain(k.Reason)})
		}
		renderTable(w, t)
	}); err != nil {
		return err
	}
	if len(paused) == 0 {
		fmt.Fprintln(a.stderr, "no kind is paused")
	}
	noteNext(a, next)
	return nil
}
