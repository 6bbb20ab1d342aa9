package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/internal/replay"
	"github.com/taskledger/taskledger/ledger"
)

func newReplayCommand(a *app) *cobra.Command {
	var f eventFilter
	var c replay.Config
	var place string
	cmd := &cobra.Command{
		Use:   "replay",
		Short: "Publish past events again, on a subject of their own",
		Long: `Publish the events of a part of the ledger again, in the order of their positions, for a program that
missed them. The messages are the same as the relay's, with the header ` + replay.Header + `. A message with the
header ` + replay.HeaderEnd + ` follows the last one. Workers do not receive them: the subject belongs to a
stream of its own, and no other program may publish on it. An administrator of NATS makes it once, with the program
nats of https://github.com/nats-io/natscli; --defaults suffices. The user operator may publish on replay.>.

Events of archived tasks are read from their files.

If the command is interrupted or killed, run it again: it continues after the last message on the subject. A
replay that has ended publishes nothing more.`,
		Example: "  nats --server \"$NATS_URL\" stream add REPLAY --subjects 'replay.>' --defaults\n" +
			"  taskledger replay --from 1 --to 3 \\\n" +
			"    --kind coupon.send --type succeeded --to-subject replay.coupons --reason 'the new data warehouse'",
		Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !f.to.isSet() || c.Subject == "" {
				return usagef("replay needs --to and --to-subject").hinted("run: %s --help", cmd.CommandPath())
			}
			if f.from.isAge() || f.to.isAge() {
				return usagef("replay needs times or positions for --from and --to, not ages").
					hinted("the same ones continue a replay that was interrupted")
			}
			c.Actor = actorOr(c.Actor)
			return a.withStream(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool, js streams) error {
				var err error
				if c.Range, err = f.events(ctx, pool); err != nil {
					return err
				}
				past := a.archive(place)
				past.AddTo(&c.Range)
				c.DB, c.JetStream, c.Archive = pool, js, past
				return replayEvents(ctx, a, c)
			})
		},
	}
	f.addRange(cmd)
	f.addTaskFilters(cmd)
	cmd.Flags().StringVar(&c.Subject, "to-subject", "", "`subject` to publish on")
	cmd.Flags().IntVar(&c.Rate, "rate", 0, "maximum number of events per second (default: 1000)")
	refuseZero(cmd.Flags(), "rate")
	addArchiveFlag(cmd, &place)
	addActorFlag(cmd, &c.Actor)
	addReasonFlag(cmd, &c.Reason)
	return cmd
}

func replayEvents(ctx context.Context, a *app, c replay.Config) error {
	stats, err := ledger.Stats(ctx, c.DB, c.Range)
	if err != nil {
		return err
	}
	total := int64(0)
	for _, s := range stats {
		total += s.Events
	}
	show, stop := a.progress("replayed", total)
	c.Progress = func(r replay.Result) { show(r.Events) }
	done, err := replay.Run(ctx, c)
	stop()
	var subject *replay.SubjectError
	switch {
	case errors.As(err, &subject):
		return failf(exitConflict, "%s", err)
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return failf(exitFailed, "interrupted: %s events replayed, up to position %d", count(done.Events),
			done.Position).hinted("run it again for the rest")
	case err != nil:
		return err
	}
	return a.print(done, func(w io.Writer) {
		fmt.Fprintf(w, "replayed: %s", count(done.Events))
		if done.Earlier > 0 {
			fmt.Fprintf(w, ", of these earlier: %s", count(done.Earlier))
		}
		if n := len(done.Invalid); n > 0 {
			fmt.Fprintf(w, "; left out, since no message can carry them: %s, from position %d on", count(int64(n)),
				done.Invalid[0])
		}
		fmt.Fprintln(w)
	})
}
