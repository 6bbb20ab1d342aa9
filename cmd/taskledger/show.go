package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/projector"
)

// showFlags are the options of show. Each object takes some of them.
type showFlags struct {
	kind, state, prefix, actor, tag, err, partition, orderKey string

	since, until pointInTime
	all          bool
	utc, local   bool
	asOf         when
	archive      string
	subscriber   string

	pageFlags
}

// showObject is an object of show.
type showObject struct {
	name                 string // in the plural
	argument             string // of one object: NAME, or "" if the object has only a list
	short, long, example string
	limit, maxLimit      int      // default and maximum of --limit; 0: there is no --limit
	flags                []string // of the list, next to --limit, --after and --watch
	flagsOfOne           []string
	isEndless            bool // the list does not continue by --after
	list                 func(context.Context, *app, *pgxpool.Pool, showFlags) error
	one                  func(context.Context, *app, *pgxpool.Pool, []string, showFlags) error
}

// takesKey reports whether one object is named by KIND BIZ_ID.
func (s showObject) takesKey() bool { return s.argument == "KIND BIZ_ID" }

// flagsOf returns the options that the object takes, without --watch: of its list or of one.
func (s showObject) flagsOf(isOne bool) []string {
	flags := slices.Clone(s.flags)
	if isOne {
		flags = slices.Clone(s.flagsOfOne)
	} else if s.limit > 0 {
		flags = append(flags, "limit")
		if !s.isEndless {
			flags = append(flags, "after")
		}
	}
	return flags
}

// usage returns the command line for the object.
func (s showObject) usage() string {
	if s.argument == "" {
		return s.name
	}
	return fmt.Sprintf("%s [%s]", s.name, s.argument)
}

func newShowCommand(a *app) *cobra.Command {
	var f showFlags
	objects := shownObjects()
	var long strings.Builder
	long.WriteString("List objects, or show one by its name. OBJECT may be singular or plural.\n\n")
	var names []string
	for _, s := range objects {
		names = append(names, s.name)
		fmt.Fprintf(&long, "  %-23s %s\n", s.usage(), s.short)
	}
	long.WriteString("\nThe options of an object: taskledger show OBJECT --help.")
	find := func(object string) showObject {
		return objects[slices.Index(names, object)]
	}
	cmd := &cobra.Command{
		Use:   "show OBJECT [NAME]",
		Short: "List objects of all kinds, or show one",
		Long:  long.String(),
		Example: "  taskledger show tasks --state dead\n  taskledger show task coupon.send order-17\n" +
			"  taskledger show workers --watch",
		Args: objectArgs(func(cmd *cobra.Command, object string, args []string) error {
			return find(object).check(cmd, args)
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			object, err := findObject(cmd, args[0])
			if err != nil {
				return err
			}
			s, given := find(object), f
			if given.limit == 0 {
				given.limit = s.limit
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				if len(args) > 1 {
					return s.one(ctx, a, pool, args[1:], given)
				}
				return s.list(ctx, a, pool, given)
			})
		},
	}
	takesObjects(cmd, names...)
	f.add(cmd)
	setHelpOfObjects(cmd, find)
	return a.watchable(cmd)
}

// add adds the options of all objects.
func (f *showFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.IntVar(&f.limit, "limit", 0, "maximum number of elements; see each object's help for its default")
	flags.StringVar(&f.after, "after", "", "`place` at which to continue: \"next\" of the previous call")
	flags.StringVar(&f.kind, "kind", "", "only tasks of this kind")
	flags.StringVar(&f.state, "state", "", "only tasks in this state")
	flags.StringVar(&f.prefix, "biz-id", "", "only tasks whose biz_id begins with this `prefix`")
	flags.StringVar(&f.actor, "actor", "", "only tasks that this actor enqueued")
	flags.StringVar(&f.partition, "partition", "", "only tasks of this partition")
	flags.StringVar(&f.orderKey, "order-key", "", "only tasks with this order key, the last in line first")
	flags.StringVar(&f.tag, "tag", "", "only tasks that were enqueued with this tag")
	flags.StringVar(&f.err, "error", "", "only tasks whose error contains this `text`")
	flags.Var(&f.since, "since", "only tasks enqueued at this time or later: a time, or an age such as 2h")
	flags.Var(&f.until, "until", "only tasks enqueued before this time")
	flags.BoolVar(&f.all, "all", false, "include tasks of taskledger itself")
	flags.BoolVar(&f.utc, "utc", false, "show times in UTC (default: ages)")
	flags.BoolVar(&f.local, "local", false, "show local times (default: ages)")
	flags.Var(&f.asOf, "as-of", "one task as it was then (default: now)")
	addArchiveFlag(cmd, &f.archive)
	flags.StringVar(&f.subscriber, "subscriber", "",
		"the events that the subscriber with this `name` has parked or leaves out")
	refuseZero(flags, "kind", "state", "actor", "tag", "partition", "order-key", "error", "limit", "subscriber")
}

// check reports arguments and options that the object does not take.
func (s showObject) check(cmd *cobra.Command, args []string) error {
	path := cmd.CommandPath() + " " + s.name
	if err := s.checkArgs(path, args); err != nil {
		return err
	}
	flags := append(s.flagsOf(len(args) > 0), "watch")
	var err error
	cmd.Flags().Visit(func(given *pflag.Flag) {
		if err != nil || cmd.LocalNonPersistentFlags().Lookup(given.Name) == nil {
			return
		}
		if !slices.Contains(flags, given.Name) {
			err = s.wrongFlag(path, given.Name, len(args) > 0)
		}
	})
	if limit, _ := cmd.Flags().GetInt("limit"); err == nil && cmd.Flags().Changed("limit") &&
		(limit < 1 || limit > s.maxLimit) {
		err = usagef("--limit must be between 1 and %d, got %d", s.maxLimit, limit)
	}
	return err
}

// wrongFlag returns the error of an option that the object does not take.
func (s showObject) wrongFlag(path, flag string, isOne bool) error {
	switch {
	case isOne && slices.Contains(s.flagsOf(false), flag):
		return usagef("--%s is for the list: %s", flag, path).hinted("run: %s --help", path)
	case flag == "as-of" && s.takesKey():
		return usagef("--as-of is for one task").hinted("for the tasks of the past: taskledger state TIME --list")
	}
	return usagef("%s does not take --%s", path, flag).hinted("run: %s --help", path)
}

func (s showObject) checkArgs(path string, args []string) error {
	usage := "usage: taskledger show " + s.usage()
	switch {
	case len(args) == 0:
		return nil
	case s.argument == "":
		return usagef("%s takes no argument, not %d", path, len(args)).hinted("%s", usage)
	case s.takesKey():
		if _, err := parseKey(args); err != nil {
			return usagef("%s", err).hinted("%s", usage)
		}
	case len(args) > 1:
		return usagef("%s takes at most 1 argument, not %d", path, len(args)).hinted("%s", usage)
	}
	return nil
}

// setHelpOfObjects lets --help behind an object show the help of that object.
func setHelpOfObjects(cmd *cobra.Command, find func(string) showObject) {
	whole := cmd.HelpFunc()
	cmd.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		for _, word := range args[min(slices.Index(args, cmd.Name())+1, len(args)):] {
			if object, err := findObject(cmd, word); err == nil {
				showHelpOf(cmd, find(object))
				return
			}
		}
		whole(cmd, args)
	})
}

// showHelpOf shows the help of an object, as if it were a subcommand.
func showHelpOf(cmd *cobra.Command, s showObject) {
	one := &cobra.Command{
		Use: s.usage(), Short: s.short, Long: s.long, Example: s.example, Run: func(*cobra.Command, []string) {},
	}
	for _, name := range append(append(s.flagsOf(false), s.flagsOfOne...), "watch") {
		flag := *cmd.Flags().Lookup(name)
		if name == "limit" {
			flag.Usage = fmt.Sprintf("maximum number, 1 to %d (default %d)", s.maxLimit, s.limit)
		}
		one.Flags().AddFlag(&flag)
	}
	cmd.AddCommand(one)
	defer cmd.RemoveCommand(one)
	one.SetHelpFunc(nil)
	one.InitDefaultHelpFlag()
	_ = one.Help() // it writes to standard output
}

// filter returns the filter for a list of tasks.
func (f showFlags) filter(after ledger.Position) projector.TaskFilter {
	now := time.Now()
	return projector.TaskFilter{
		Kind: ledger.Kind(f.kind), State: ledger.State(f.state), Limit: f.limit, StartAfter: after,
		Prefix: f.prefix, Actor: f.actor, Tag: f.tag, Partition: f.partition, OrderKey: f.orderKey,
		Error: f.err, From: f.since.at(now), To: f.until.at(now),
		IsWithoutOwn: !f.all && f.kind == "",
	}
}

// position returns the position of --after.
func (f showFlags) position() (ledger.Position, error) {
	if f.after == "" || f.after == "0" {
		return 0, nil
	}
	p, err := parsePositions([]string{f.after})
	if err != nil {
		return 0, usagef("--after must be a position, got %q", f.after)
	}
	return p[0], nil
}

// time formats a time of a task: its age, or a time with its zone.
func (f showFlags) time(t time.Time) string {
	if f.utc || f.local {
		if t = t.Local(); f.utc {
			t = t.UTC()
		}
		return t.Format("2006-01-02 15:04:05.000Z07:00")
	}
	return ago(t)
}
