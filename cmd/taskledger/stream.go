package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/internal/pgpool"
	"github.com/taskledger/taskledger/internal/relays"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/outbox"
)

// shownStream is the state of the stream as JSON.
type shownStream struct {
	Stream *relays.StreamDetail `json:"stream"` // null: it does not exist
}

// showStream prints the stream.
func showStream(ctx context.Context, a *app, pool *pgxpool.Pool) error {
	return a.onStream(ctx, pool, func(ctx context.Context, pool *pgxpool.Pool, js streams) error {
		d, err := relays.ReadStream(ctx, pool, js, outbox.StreamConfig{})
		if err != nil {
			return err
		}
		return a.print(shownStream{d}, func(w io.Writer) { renderStream(w, a.streamName(), d) })
	})
}

type streams = jetstream.JetStream

// withStream calls f with a connection pool of the database and JetStream.
func (a *app) withStream(
	ctx context.Context, f func(context.Context, *pgxpool.Pool, streams) error,
) error {
	return a.withDatabase(ctx, func(ctx context.Context, pool *pgxpool.Pool) error {
		return a.onStream(ctx, pool, f)
	})
}

// onStream calls f with JetStream.
func (a *app) onStream(
	ctx context.Context, pool *pgxpool.Pool, f func(context.Context, *pgxpool.Pool, streams) error,
) error {
	nc, err := a.connectNATS(false)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(pgpool.ConnectTimeout))
	if err != nil {
		return err
	}
	return f(ctx, pool, js)
}

// streamName returns the name of the ledger's stream.
func (a *app) streamName() string { return stream.Prefix(a.config.natsPrefix).Stream() }

func renderStream(w io.Writer, name string, d *relays.StreamDetail) {
	if d == nil {
		fmt.Fprintf(w, "there is no stream %s; a relay makes it\n", name)
		return
	}
	owner := plain(d.Ledger)
	if !d.IsOwn {
		owner += " (another ledger)"
	}
	subscribers := make([]string, len(d.Subscribers))
	for i, c := range d.Subscribers {
		subscribers[i] = plain(c.Durable)
	}
	fields := [][2]string{
		{"ledger", owner},
		{"created", ago(d.Created)},
		{"messages", fmt.Sprintf("%s, %d to %d", count(int64(d.Messages)), d.FirstSeq, d.LastSeq)},
		{"size", sizeText(d.Bytes, d.MaxBytes)},
		{"durable subscribers", strings.Join(subscribers, ", ")},
	}
	for _, drift := range d.Drift {
		fields = append(fields, [2]string{"drift", plain(drift)})
	}
	renderFields(w, fields...)
}

func newRebuildStreamCommand(a *app) *cobra.Command {
	var o relays.RebuildOptions
	var yes, dryRun bool
	cmd := &cobra.Command{
		Use:   "stream",
		Short: "Delete the stream; the relay creates it again from the ledger",
		Long: `Delete the stream LEDGER, and let the relay make it again, with its configuration, and publish the last
100,000 positions on it. It is the cure for a stream that is damaged, has other settings, or does not belong to a
restored database. Without --yes the command shows the stream and changes nothing. It prints the commands by
which the administrator of NATS makes the consumers of durable subscribers again.

Tasks do not change. Durable subscribers lose their consumers and their places. When these are made again,
they begin at the front of the new stream. A program that must not lose an event reads the ledger.

First make sure that no relay works on a copy of this database.`,
		Example: "  taskledger rebuild stream\n  taskledger rebuild stream --yes --reason 'restored from backup'",
		Args:    exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Actor = actorOr(o.Actor)
			return a.withStream(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool, js streams) error {
				return rebuildStream(ctx, a, pool, js, o, yes)
			})
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "delete the stream (default: show what would be deleted)")
	addDryRunFlag(cmd, &dryRun)
	cmd.MarkFlagsMutuallyExclusive("yes", "dry-run")
	cmd.Flags().BoolVar(&o.Foreign, "foreign", false, "delete the stream even if it belongs to another ledger")
	addActorFlag(cmd, &o.Actor)
	addReasonFlag(cmd, &o.Reason)
	return cmd
}

// rebuiltStream is the result of rebuild stream.
type rebuiltStream struct {
	Deleted *relays.StreamDetail `json:"deleted"` // null: there was no stream
	DryRun  bool                 `json:"dry_run"`
}

func rebuildStream(
	ctx context.Context, a *app, pool *pgxpool.Pool, js streams, o relays.RebuildOptions, yes bool,
) error {
	before, err := relays.ReadStream(ctx, pool, js, outbox.StreamConfig{})
	if err != nil {
		return err
	}
	if !yes {
		return a.print(rebuiltStream{before, true}, func(w io.Writer) {
			renderStream(w, a.streamName(), before)
			renderSubscribers(w, a.streamName(), before)
			fmt.Fprintln(w, "would be deleted, and made again by the relay; to do so: taskledger rebuild stream --yes")
		})
	}
	renderSubscribers(a.stderr, a.streamName(), before) // even if the command fails later
	if err := relays.RebuildStream(ctx, pool, js, &o); err != nil {
		return err
	}
	return a.print(rebuiltStream{before, false}, func(w io.Writer) {
		fmt.Fprintln(w, "the stream is deleted; the relay makes it again: taskledger status")
	})
}

// renderSubscribers writes the commands that recreate the consumers of durable subscribers.
func renderSubscribers(w io.Writer, name string, d *relays.StreamDetail) {
	if d == nil || len(d.Subscribers) == 0 {
		return
	}
	fmt.Fprintln(w, "durable subscribers lose their consumers, which the administrator of NATS makes again "+
		"(nats --server URL --nkey admin.nk --tlsca CA for a server with keys):")
	for _, c := range d.Subscribers {
		config, err := json.Marshal(c)
		if err != nil { // it was JSON
			panic(err)
		}
		fmt.Fprintf(w, "  printf %%s %s | nats consumer add %s %s --config /dev/stdin\n",
			shellWord(string(escapeControls(config))), name, shellWord(c.Durable))
	}
}
