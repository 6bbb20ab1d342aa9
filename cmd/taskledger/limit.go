package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/ledger"
)

// limit contains the limits with one name as JSON: a kind's limit of waiting tasks, a limit of starts, and the weight
// of a partition.
type limit struct {
	Name string `json:"name"`
	partitionWeight
	*overloadLimit
	*startLimit
}

// partitionWeight is the weight of the partition with the name.
type partitionWeight struct {
	Weight float64 `json:"partition_weight,omitempty"`
}

// overloadLimit is the limit of waiting tasks.
type overloadLimit struct {
	MaxWaiting   int64                 `json:"max_waiting"`
	Policy       ledger.OverloadPolicy `json:"policy"`
	RetryAfterMS int64                 `json:"retry_after_ms"`
}

// startLimit is the limit of starts.
type startLimit struct {
	Kinds      map[ledger.Kind]int `json:"kinds"` // with their weights
	Per        ledger.LimitPer     `json:"per,omitempty"`
	MaxRunning *int                `json:"max_running,omitempty"`
	Rate       string              `json:"rate,omitempty"`
	Burst      int                 `json:"burst,omitempty"`
}

// usedLimit contains the limits with one name with their use.
type usedLimit struct {
	limit
	Waiting int64      `json:"waiting"`
	Running *int       `json:"running,omitempty"` // with a limit of starts
	Oldest  *time.Time `json:"oldest,omitempty"`  // since when the first of them has run
	Next    *time.Time `json:"next,omitempty"`    // when the rate allows the next start
}

func overloadOf(l ledger.Limit) *overloadLimit {
	return &overloadLimit{l.MaxWaiting, l.Policy, l.RetryAfter.Milliseconds()}
}

func startLimitOf(l ledger.StartLimit) *startLimit {
	of := &startLimit{Kinds: l.Kinds, Per: l.Per, MaxRunning: l.MaxRunning}
	if l.Rate != nil {
		of.Rate, of.Burst = ledger.StartRate{Starts: l.Rate.Starts, Period: l.Rate.Period}.String(), l.Rate.Burst
	}
	return of
}

// readLimits returns the limits of at most n names, of the first after a name, ordered by name.
func readLimits(ctx context.Context, db ledger.DB, after string, n int) ([]usedLimit, error) {
	waiting, err := ledger.ReadLimits(ctx, db, ledger.Kind(after), n)
	if err != nil {
		return nil, err
	}
	starts, err := ledger.ReadStartLimits(ctx, db, "", after, n)
	if err != nil {
		return nil, err
	}
	weights, err := ledger.ReadPartitionWeights(ctx, db, after, n)
	if err != nil {
		return nil, err
	}
	byName := make(map[string]usedLimit)
	for _, l := range waiting {
		name := string(l.Kind)
		byName[name] = usedLimit{limit: limit{Name: name, overloadLimit: overloadOf(l.Limit)}, Waiting: l.Waiting}
	}
	for _, l := range starts {
		u := byName[l.Name]
		u.Name, u.Waiting, u.Running, u.startLimit = l.Name, l.Waiting, &l.Running, startLimitOf(l.StartLimit)
		if !l.Oldest.IsZero() {
			u.Oldest = &l.Oldest
		}
		if !l.Next.IsZero() {
			u.Next = &l.Next
		}
		byName[l.Name] = u
	}
	for _, w := range weights {
		u := byName[w.Partition]
		u.Name, u.Weight = w.Partition, w.Weight
		byName[w.Partition] = u
	}
	all := slices.SortedFunc(maps.Values(byName), func(a, b usedLimit) int { return cmp.Compare(a.Name, b.Name) })
	return all[:min(n, len(all))], nil
}

// row returns the row of a table.
func (u usedLimit) row() table.Row {
	r := table.Row{plain(u.Name), "", "", count(u.Waiting), "", "", "", "", "", "", "", ""}
	if u.Weight > 0 {
		r[11] = weightText(u.Weight)
		if u.overloadLimit == nil && u.startLimit == nil {
			r[3] = "" // of a kind
		}
	}
	if l := u.overloadLimit; l != nil {
		r[4], r[5] = count(l.MaxWaiting), l.Policy
	}
	l := u.startLimit
	if l == nil {
		return r
	}
	if r[1] = kindsText(l.Kinds); r[1] == u.Name {
		r[1] = "" // as for most limits
	}
	r[2], r[6] = l.Per, count(int64(*u.Running))
	if l.MaxRunning != nil {
		r[7] = count(int64(*l.MaxRunning))
	}
	if u.Oldest != nil {
		r[8] = ago(*u.Oldest)
	}
	r[9] = l.Rate
	if l.Rate != "" && l.Burst > 0 {
		r[9] = fmt.Sprintf("%s burst %d", l.Rate, l.Burst)
	}
	if u.Next != nil {
		r[10] = "in " + age(max(0, time.Until(*u.Next)))
	}
	return r
}

// kindsText returns kinds with weights above 1, as --kinds takes them.
func kindsText(kinds map[ledger.Kind]int) string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		if kinds[k] > 1 {
			all = append(all, fmt.Sprintf("%s:%d", k, kinds[k]))
		} else {
			all = append(all, string(k))
		}
	}
	return strings.Join(all, ",")
}

func listLimits(ctx context.Context, a *app, pool *pgxpool.Pool, f showFlags) error {
	all, next, err := readPage(ctx, pool, f.pageFlags, readLimits, func(u usedLimit) string { return u.Name })
	if err != nil {
		return err
	}
	if err := printList(a, struct {
		Limits []usedLimit `json:"limits"`
		Next   string      `json:"next,omitempty"`
	}{all, next}, all, func(w io.Writer) {
		if len(all) == 0 {
			return
		}
		header := []any{"name", "kinds", "per", "waiting", "at most", "policy", "running", "concurrency", "since",
			"rate", "next start", "partition weight"}
		t := newTable(header, 4, 5, 7, 8, 12)
		for _, l := range all {
			t.AppendRow(l.row())
		}
		t.SuppressEmptyColumns()
		renderTable(w, t)
	}); err != nil {
		return err
	}
	if len(all) == 0 {
		fmt.Fprintln(a.stderr, "no limits")
		return nil
	}
	noteNext(a, next)
	return noteLag(ctx, a, pool)
}

// startFlags are the flags of a limit of starts.
type startFlags struct {
	kinds          []string
	per            string
	concurrency    string
	rate           string
	burst          int
	isPer, isBurst bool // given
}

// isGiven reports whether the command sets a limit of starts.
func (f *startFlags) isGiven() bool {
	return f.concurrency != "" || f.rate != "" || len(f.kinds) > 0 || f.isPer || f.isBurst
}

// change returns a limit as the flags change it.
func (f *startFlags) change(l ledger.StartLimit) (ledger.StartLimit, error) {
	if len(f.kinds) > 0 {
		l.Kinds = map[ledger.Kind]int{}
	} else if len(l.Kinds) == 0 {
		l.Kinds = map[ledger.Kind]int{ledger.Kind(l.Name): 1}
	}
	for _, text := range f.kinds {
		kind, weight, isWeighed := strings.Cut(text, ":")
		n, err := strconv.Atoi(weight)
		if isWeighed && (err != nil || n < 1) {
			return l, &ledger.InvalidError{Field: "kinds", Value: text, Rule: "must be KIND or KIND:WEIGHT"}
		}
		l.Kinds[ledger.Kind(kind)] = max(1, n)
	}
	if f.isPer {
		l.Per = ledger.LimitPer(strings.ReplaceAll(f.per, "-", "_"))
		if f.per == "none" {
			l.Per = ""
		}
	}
	switch f.concurrency {
	case "":
	case "none":
		l.MaxRunning = nil
	default:
		n, err := strconv.Atoi(f.concurrency)
		if err != nil {
			return l, &ledger.InvalidError{
				Field: "concurrency", Value: f.concurrency, Rule: "must be a number, or none"}
		}
		l.MaxRunning = &n
	}
	switch f.rate {
	case "":
	case "none":
		l.Rate = nil
	default:
		r, err := ledger.ParseStartRate(f.rate)
		if err != nil {
			return l, err
		}
		l.Rate = &r
	}
	if f.isBurst {
		if l.Rate == nil {
			return l, &ledger.InvalidError{Field: "burst", Value: strconv.Itoa(f.burst), Rule: "needs a rate"}
		}
		r := *l.Rate
		r.Burst = f.burst
		l.Rate = &r
	}
	return l, nil
}

// removes reports whether the flags only remove limits.
func (f *startFlags) removes() bool {
	return (f.concurrency == "none" || f.rate == "none") && len(f.kinds) == 0 && !f.isPer && !f.isBurst
}

// set sets a limit of starts, or removes it if nothing of it is left. It returns the limit, or nil if it was removed.
func (f *startFlags) set(
	ctx context.Context, tx pgx.Tx, name string, by operator.Audit,
) (*ledger.StartLimit, error) {
	l, isKnown, err := ledger.FindStartLimit(ctx, tx, name)
	if err != nil {
		return nil, err
	}
	l.Name = name
	changed, err := f.change(l.StartLimit)
	if err != nil {
		return nil, err
	}
	if f.removes() && changed.MaxRunning == nil && changed.Rate == nil {
		if isKnown {
			_, err = operator.RemoveStartLimit(ctx, tx, name, by)
		}
		return nil, err
	}
	return &changed, operator.SetStartLimit(ctx, tx, changed, by)
}

// startText describes a limit of starts. l is nil if it was removed.
func startText(name string, l *ledger.StartLimit) string {
	if l == nil {
		return fmt.Sprintf("any number of tasks of limit %s may run\n", plain(name))
	}
	of := "of " + kindsText(l.Kinds)
	if l.Per != "" {
		of += " with the same " + strings.ReplaceAll(string(l.Per), "_", " ")
	}
	var text string
	if l.MaxRunning != nil {
		text = fmt.Sprintf("at most %d tasks %s may run at a time\n", *l.MaxRunning, of)
	}
	if l.Rate != nil {
		text += fmt.Sprintf("at most %s tasks %s may start\n", l.Rate, of)
	}
	return text
}

// weightFlags are the flags of a partition's weight.
type weightFlags struct {
	partition, weight string
}

// flagsOfLimits are the flags that a weight does not take.
var flagsOfLimits = []string{"concurrency", "rate", "burst", "kinds", "per", "policy", "retry-after"}

func weightText(weight float64) string { return strconv.FormatFloat(weight, 'f', -1, 64) }

// set sets or removes the weight, and prints it.
func (f weightFlags) set(ctx context.Context, a *app, by operator.Audit) error {
	weight, err := strconv.ParseFloat(f.weight, 64)
	if f.weight != "none" && err != nil {
		return &ledger.InvalidError{Field: "weight", Value: f.weight, Rule: "must be a number, or none"}
	}
	return a.withDatabase(ctx, func(ctx context.Context, pool *pgxpool.Pool) error {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) (err error) {
			if f.weight == "none" {
				_, err = operator.RemoveWeight(ctx, tx, f.partition, by)
				weight = 1
				return err
			}
			return operator.SetWeight(ctx, tx, f.partition, weight, by)
		})
		if err != nil {
			return err
		}
		return a.print(struct {
			Partition string `json:"partition"`
			partitionWeight
		}{f.partition, partitionWeight{weight}}, func(w io.Writer) {
			fmt.Fprintf(w, "partition %s has the weight %s\n", plain(f.partition), weightText(weight))
		})
	})
}

func newLimitCommand(a *app) *cobra.Command {
	var l ledger.Limit
	var starts startFlags
	var weight weightFlags
	var policy string
	var by operator.Audit
	cmd := &cobra.Command{
		Use:   "limit [NAME] [MAX_WAITING]",
		Short: "Limit how many tasks may run, start or wait, and set shares of partitions",
		Long: `Limit how many tasks may run at a time, with --concurrency, and how many may start in a period, with
--rate, over all workers. NAME is a kind, or a name of your choice with the kinds that share the limit in
--kinds. With --per, each partition or order key is counted separately. Flags that are not given stay as
they are. A lower limit than before takes effect when enough tasks have ended. See docs/limits.md.

Limit how many tasks of a kind may wait, for all producers. Above the limit the policy decides:

  reject          the enqueue fails
  discard         the enqueue succeeds, and the task is discarded at once
  discard_oldest  the enqueue succeeds, and the tasks that have waited longest are discarded
  caller_runs     the producer runs the handler (workers.Caller in Go; otherwise the enqueue fails)

The limit counts the tasks that the projector has counted: for a task that is due later, also the
scheduled ones. See docs/overload.md.

Set the weight of a partition with --partition and --weight, without NAME: while partitions have waiting
tasks of a kind and priority, these begin in proportion to the weights. The default is 1. See
docs/overload.md.`,
		Example: "  taskledger limit coupon.send 100000\n" +
			"  taskledger limit price.refresh 50 --policy discard_oldest\n" +
			"  taskledger limit partner.call --concurrency 5\n" +
			"  taskledger limit partner-x --kinds order.send,order.track:2 --rate 100/m --burst 10\n" +
			"  taskledger limit report.make --per partition --concurrency 2\n" +
			"  taskledger limit partner.call --concurrency none\n" +
			"  taskledger limit --partition tenant-7 --weight 3\n" +
			"  taskledger limit --partition tenant-7 --weight none",
		Args: func(cmd *cobra.Command, args []string) error {
			isWeight := cmd.Flags().Changed("partition")
			switch {
			case isWeight != cmd.Flags().Changed("weight"):
				return usagef("--partition and --weight need each other").hinted("usage: %s", cmd.UseLine())
			case isWeight && len(args) > 0:
				return usagef("%s takes no NAME with --partition and --weight", cmd.CommandPath()).
					hinted("usage: %s", cmd.UseLine())
			case isWeight && slices.ContainsFunc(flagsOfLimits, cmd.Flags().Changed):
				return usagef("--partition and --weight set no limit: leave out --%s",
					strings.Join(flagsOfLimits, ", --")).hinted("usage: %s", cmd.UseLine())
			case !isWeight && (len(args) < 1 || len(args) > 2):
				return usagef("%s takes NAME and, at most, MAX_WAITING", cmd.CommandPath()).
					hinted("usage: %s", cmd.UseLine())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			by.Actor = actorOr(by.Actor)
			if weight.weight != "" {
				return weight.set(cmd.Context(), a, by)
			}
			l.Kind, l.Policy = ledger.Kind(args[0]), ledger.OverloadPolicy(policy)
			starts.isPer, starts.isBurst = cmd.Flags().Changed("per"), cmd.Flags().Changed("burst")
			isWaiting := len(args) == 2
			if !isWaiting && !starts.isGiven() {
				return usagef("%s needs MAX_WAITING, --concurrency or --rate", cmd.CommandPath()).
					hinted("usage: %s", cmd.UseLine())
			}
			if !isWaiting && (cmd.Flags().Changed("policy") || cmd.Flags().Changed("retry-after")) {
				return usagef("--policy and --retry-after need MAX_WAITING").hinted("usage: %s", cmd.UseLine())
			}
			if isWaiting {
				var err error
				if l.MaxWaiting, err = strconv.ParseInt(args[1], 10, 64); err != nil {
					return &ledger.InvalidError{Field: "max_waiting", Value: args[1], Rule: "must be a number"}
				}
			}
			if _, err := starts.change(ledger.StartLimit{Name: args[0], Rate: &ledger.StartRate{}}); err != nil {
				return err
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				answer := limit{Name: args[0]}
				limited := []ledger.Kind{l.Kind}
				var text string
				err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
					if isWaiting {
						answer.overloadLimit, text = overloadOf(l), fmt.Sprintf(
							"at most %d tasks of kind %s may wait (%s)\n", l.MaxWaiting, l.Kind, l.Policy)
						if err := operator.SetWaitingLimit(ctx, tx, l, by); err != nil {
							return err
						}
					}
					if !starts.isGiven() {
						return nil
					}
					set, err := starts.set(ctx, tx, args[0], by)
					if err != nil {
						return err
					}
					if set != nil {
						answer.startLimit = startLimitOf(*set)
						limited = slices.Sorted(maps.Keys(set.Kinds)) // its name may be no kind
					}
					text += startText(args[0], set)
					return nil
				})
				if err != nil {
					return err
				}
				for _, kind := range limited {
					if err := a.noteUnknownKind(ctx, pool, kind); err != nil {
						return err
					}
				}
				return a.print(answer, func(w io.Writer) { _, _ = io.WriteString(w, text) })
			})
		},
	}
	cmd.Flags().StringVar(&starts.concurrency, "concurrency", "",
		fmt.Sprintf("how many tasks may run at a time, 0 to %d; none: any number", ledger.MaxRunning))
	cmd.Flags().StringVar(&starts.rate, "rate", "",
		"how many tasks may start in a second, minute, hour or day: 10/s, 100/m, 1000/h, 5000/d; none: any number")
	cmd.Flags().IntVar(&starts.burst, "burst", 0,
		fmt.Sprintf("how many may start at once: a divisor of the rate up to %d (default the greatest)",
			ledger.MaxBurst))
	cmd.Flags().StringSliceVar(&starts.kinds, "kinds", nil,
		"kinds that share the limit, KIND:WEIGHT if a start counts as several of the rate (default NAME)")
	cmd.Flags().StringVar(&starts.per, "per", "",
		"partition or order-key: each is counted separately; none: one count")
	cmd.Flags().StringVar(&weight.partition, "partition", "", "the partition whose weight to set")
	cmd.Flags().StringVar(&weight.weight, "weight", "", fmt.Sprintf("the partition's share, %v to %v; none: 1",
		ledger.MinPartitionWeight, ledger.MaxPartitionWeight))
	cmd.Flags().StringVar(&policy, "policy", string(ledger.Reject), "reject, discard, discard_oldest or caller_runs")
	policies := []string{string(ledger.Reject), string(ledger.Discard), string(ledger.DiscardOldest),
		string(ledger.CallerRuns)}
	_ = cmd.RegisterFlagCompletionFunc("policy",
		cobra.FixedCompletions(policies, cobra.ShellCompDirectiveNoFileComp)) // the flag exists, and has one completion
	l.RetryAfter = time.Second
	addDuration(cmd.Flags(), &l.RetryAfter, "retry-after",
		"delay after which a rejected producer should retry, as a hint")
	refuseZero(cmd.Flags(), "policy", "retry-after", "burst")
	refuseZero(cmd.Flags(), "partition", "weight")
	addActorFlag(cmd, &by.Actor)
	addReasonFlag(cmd, &by.Reason)
	return cmd
}
