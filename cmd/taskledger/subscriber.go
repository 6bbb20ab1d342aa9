package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/ledger"
)

func listSubscribers(ctx context.Context, a *app, pool *pgxpool.Pool, f showFlags) error {
	all, next, err := readPage(ctx, pool, f.pageFlags, subscribers.ReadAll,
		func(s subscribers.Subscriber) string { return s.Name })
	if err != nil {
		return err
	}
	states, err := subscribers.ReadStates(ctx, pool)
	if err != nil {
		return err
	}
	listed := withStates(all, states)
	list := struct {
		Subscribers []listedSubscriber `json:"subscribers"`
		Next        string             `json:"next,omitempty"`
	}{listed, next}
	if len(all) == 0 {
		fmt.Fprintln(a.stderr, "no subscribers")
	}
	err = printList(a, list, listed, func(w io.Writer) { renderReaders(w, listed) })
	noteNext(a, next)
	return err
}

// listedSubscriber is a subscriber with its state, as JSON.
type listedSubscriber struct {
	subscribers.Subscriber
	State *subscribers.State `json:"state"` // null: it has no tables and parks no events
}

// withStates adds the states of the subscribers that have one.
func withStates(all []subscribers.Subscriber, states []subscribers.State) []listedSubscriber {
	listed := make([]listedSubscriber, len(all))
	for i, s := range all {
		listed[i].Subscriber = s
		if at := slices.IndexFunc(states, func(o subscribers.State) bool { return o.Name == s.Name }); at >= 0 {
			listed[i].State = &states[at]
		}
	}
	return listed
}

func renderReaders(w io.Writer, all []listedSubscriber) {
	if len(all) == 0 {
		return
	}
	t := newTable([]any{"subscriber", "behind", "position", "moved", "parked", "state"}, 3, 5)
	for _, s := range all {
		parked := ""
		if s.State != nil {
			parked = printable.Counted(int64(s.State.Parked))
		}
		t.AppendRow(table.Row{
			plain(s.Name), lagOf(s.Subscriber), int64(s.Position), ago(s.MovedAt), parked, s.stateText(),
		})
	}
	renderTable(w, t)
}

func lagOf(s subscribers.Subscriber) string {
	return waitingText(s.Lag, s.IsCapped, time.Duration(s.Age)*time.Millisecond)
}

func stateOf(s subscribers.Subscriber) string {
	switch {
	case !s.IsLocal:
		return "of another database: taskledger rebase"
	case s.IsPaused:
		return "paused"
	}
	return "active"
}

// stateText returns the state of a subscriber in one line.
func (s listedSubscriber) stateText() string {
	if s.State == nil {
		return stateOf(s.Subscriber)
	}
	switch f, w := s.State.Failing, s.State.Work; {
	case f != nil:
		return shorten(fmt.Sprintf("stopped at position %d, %s version %d, failed %s times since %s: %s",
			f.Position, f.Key, f.Version, count(int64(f.Failures)), ago(f.Since), f.Error), maxState)
	case w != nil && w.Result == nil:
		return fmt.Sprintf("%s: %s of %s events", w.Name, count(w.Done), count(w.Total))
	case s.State.Wanted != "":
		return s.State.Wanted + " asked for"
	}
	return stateOf(s.Subscriber)
}

// maxState is the length of the state of a subscriber in a list.
const maxState = 160

// unknownSubscriber is the error for a name without a subscriber.
func unknownSubscriber(err error) error {
	if f := describe(err); f.exit == exitNotFound {
		return f.hinted("list the subscribers with: taskledger show subscribers")
	}
	return err
}

// showSubscriber prints a subscriber as it is now.
func showSubscriber(ctx context.Context, a *app, pool *pgxpool.Pool, name string) error {
	s, err := subscribers.Read(ctx, pool, name)
	if err != nil {
		return unknownSubscriber(err)
	}
	listed := listedSubscriber{Subscriber: s}
	state, err := subscribers.ReadState(ctx, pool, name)
	if err != nil {
		return unknownSubscriber(err)
	}
	if !state.Since.IsZero() {
		listed.State = &state
	}
	return a.print(listed, func(w io.Writer) {
		renderFields(w,
			[2]string{"subscriber", plain(s.Name)},
			[2]string{"state", listed.stateText()},
			[2]string{"behind", lagOf(s)},
			[2]string{"position", strconv.FormatInt(int64(s.Position), 10)},
			[2]string{"moved", ago(s.MovedAt)},
			[2]string{"login", plain(s.Login)},
		)
		if t := listed.State; t != nil {
			renderFields(w,
				[2]string{"version", strconv.Itoa(t.Version)},
				[2]string{"tables", strings.Join(t.Tables, ", ")},
				[2]string{"parked", printable.Counted(int64(t.Parked))},
				[2]string{"discarded", printable.Counted(int64(t.Discarded))},
			)
		}
	})
}

func newSeekSubscriberCommand(a *app) *cobra.Command {
	var actor, reason, at, login string
	var position int64
	var isNow, isBeginning bool
	cmd := &cobra.Command{
		Use:   "subscriber NAME",
		Short: "Move a subscriber, create it, or give it to another login",
		Long: `Move a subscriber to after the event at a position, to a time, to the beginning of the ledger or to the
present. It is made if it is missing. A process that works as it continues there after its next page.

With --give its place stays. A subscriber belongs to the login that first reads as it, and no other login with the role
subscriber may move it.`,
		Example: "  taskledger seek subscriber mails --beginning\n" +
			"  taskledger seek subscriber mails --position 4711 --reason 'mails were lost'\n" +
			"  taskledger seek subscriber mails --time 2026-11-22T10:00:00Z\n" +
			"  taskledger seek subscriber mails --give mails_2 --reason 'the login was renamed'",
		Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			given := 0
			for _, name := range []string{"position", "time", "beginning", "now", "give"} {
				if cmd.Flags().Changed(name) {
					given++
				}
			}
			if given != 1 {
				return usagef("give one of --position, --time, --beginning, --now and --give, got %d", given)
			}
			to := feed.After(ledger.Position(position))
			switch {
			case isNow:
				to = feed.Now()
			case at != "":
				t, err := parseTime("--time", at)
				if err != nil {
					return err
				}
				to = feed.At(t)
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				if login != "" {
					if err := subscribers.Give(ctx, pool, args[0], login, actorOr(actor), reason); err != nil {
						return unknownSubscriber(err)
					}
					return showSubscriber(ctx, a, pool, args[0])
				}
				if err := subscribers.Seek(ctx, pool, args[0], to, actorOr(actor), reason); err != nil {
					return err
				}
				return showSubscriber(ctx, a, pool, args[0])
			})
		},
	}
	cmd.Flags().Int64Var(&position, "position", 0, "to after the event at this `position`")
	cmd.Flags().StringVar(&at, "time", "", "to this `time` (RFC 3339)")
	cmd.Flags().BoolVar(&isBeginning, "beginning", false, "to the beginning of the ledger")
	cmd.Flags().BoolVar(&isNow, "now", false, "to the present")
	cmd.Flags().StringVar(&login, "give", "", "give it to this `login` of the database")
	addActorFlag(cmd, &actor)
	addReasonFlag(cmd, &reason)
	return cmd
}
