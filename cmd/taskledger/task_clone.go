package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/ledger"
)

func newCloneCommand(a *app) *cobra.Command {
	var audit operator.Audit
	var as string
	cmd := &cobra.Command{
		Use:   "clone KIND BIZ_ID",
		Short: "Enqueue a new task with the args of an existing task",
		Long: `Enqueue a new task of the same kind, with the args, tags and retry policy of a task in any state. So a
task that has succeeded is done again. The existing task is the cause of the new task, which gets no deadline.
If the new task exists with the same args, nothing is written; with other args, that is a conflict (exit code 4).`,
		Example: "  taskledger clone coupon.send order-17 --as order-17-again --reason 'the mail was lost'",
		Args:    keyArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := parseKey(args)
			if err != nil {
				return err
			}
			if as == "" {
				return usagef("clone needs --as with the BIZ_ID of the new task").hinted("usage: %s", cmd.UseLine())
			}
			audit.Actor = actorOr(audit.Actor)
			return cloneTask(cmd.Context(), a, key, ledger.BizID(as), audit)
		},
	}
	cmd.Flags().StringVar(&as, "as", "", "`BIZ_ID` of the new task")
	addActorFlag(cmd, &audit.Actor)
	cmd.Flags().StringVar(&audit.Reason, "reason", "", "reason, for the meta of the new task")
	return cmd
}

func cloneTask(ctx context.Context, a *app, key ledger.Key, as ledger.BizID, audit operator.Audit) error {
	return a.withOperator(ctx, func(o *operator.Operator, _ *pgxpool.Pool) error {
		clone := ledger.Key{Kind: key.Kind, BizID: as}
		answer, err := o.Clone(ctx, key, as, audit)
		if other := (*ledger.OtherArgsError)(nil); errors.As(err, &other) {
			return failf(exitConflict, "%s; nothing was changed", other).
				hinted("choose another BIZ_ID")
		}
		if err != nil {
			return unknownTask(err, key)
		}
		return a.print(answer, func(w io.Writer) {
			if answer.New {
				fmt.Fprintf(w, "enqueued %s, with the args of %s\n", plain(clone.String()), plain(key.String()))
				return
			}
			fmt.Fprintf(w, "%s exists with the same args: %s\n", plain(clone.String()), answer.State)
		})
	})
}
