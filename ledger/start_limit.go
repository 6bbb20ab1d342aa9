package ledger

import (
	"context"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/reserved"
)

var (
	//go:embed sql/start_limit_set.sql
	startLimitSetSQL string
	//go:embed sql/start_limit_remove.sql
	startLimitRemoveSQL string
	//go:embed sql/start_limits.sql
	startLimitsSQL string
)

const (
	// MaxRunning is the highest number of running tasks that a [StartLimit] can allow.
	MaxRunning = 10_000
	// MaxBurst is the highest burst of a [StartRate].
	MaxBurst = 10_000
	// MaxRate is the highest number of starts in a period of a [StartRate].
	MaxRate = 100_000_000
)

// ErrStartLimit means that a [StartLimit] allows no further start now. Nothing was written.
var ErrStartLimit = pgerr.ErrStartLimit

// StartLimit limits the starts of tasks, over all workers in every language. It is stored in the database, which
// refuses every start above it. A worker takes a permit for each task of a kind with a limit, or records its start,
// before its handler runs.
//
// A task counts as running from then to the event that ends the attempt. If its worker is lost, it counts until it is
// continued or ended, or for 10 s if its start was not recorded.
//
// A higher limit takes effect at once. After a lower one, no task starts until it is kept. A kind's first limit takes
// effect when its workers have read it, within a second. Until they end, it does not count tasks that began shortly
// before that without a recorded start.
type StartLimit struct {
	// Name is the limit's name: the kind's name for a limit of one kind, otherwise any name of the same form.
	Name string
	// Kinds contains the kinds that share the limit, and the weight of each: how many of the rate's starts one of its
	// starts counts as. 0 means 1.
	Kinds map[Kind]int
	// Per gives each value of a property of tasks a count of its own. The limit does not apply to tasks without the
	// property. Default: one count.
	Per LimitPer
	// MaxRunning is how many of the tasks may run at a time, at most [MaxRunning]; 0: no task starts. Default:
	// any number.
	MaxRunning *int
	// Rate is how many of the tasks may start in a period. Default: any number.
	Rate *StartRate
}

// LimitPer is a property of tasks whose values a [StartLimit] counts separately.
type LimitPer string

// The properties of tasks.
const (
	PerPartition LimitPer = "partition"
	PerOrderKey  LimitPer = "order_key"
)

// StartRate is the number of tasks that may start in a period: in any interval of that length by the database's clock,
// whenever it begins.
type StartRate struct {
	Starts int           // 1 to [MaxRate]
	Period time.Duration // a second, a minute, an hour or a day
	// Burst is how many may start at once, at most [MaxBurst]. It divides Starts. At most Burst tasks start in any
	// interval of Period * Burst / Starts. Default: Starts, or its greatest divisor up to [MaxBurst].
	Burst int
}

// String returns the rate as in "100/m" or, with a burst below the default, "100/m burst 10".
func (r StartRate) String() string {
	text := fmt.Sprint(r.Starts, "/", periodNames[r.Period])
	if r.Burst != 0 && r.Burst != r.defaultBurst() {
		text += fmt.Sprint(" burst ", r.Burst)
	}
	return text
}

var periodNames = map[time.Duration]string{time.Second: "s", time.Minute: "m", time.Hour: "h", 24 * time.Hour: "d"}

// ParseStartRate parses a rate as in "100/m": s, m, h or d is the period. It returns an [*InvalidError] if text is
// invalid.
func ParseStartRate(text string) (StartRate, error) {
	var r StartRate
	number, period, isRate := strings.Cut(text, "/")
	n, err := fmt.Sscanf(number+" ", "%d ", &r.Starts)
	for length, name := range periodNames {
		if name == period {
			r.Period = length
		}
	}
	if !isRate || n != 1 || err != nil || fmt.Sprint(r.Starts) != number || r.Period == 0 {
		return r, &InvalidError{
			Field: "rate", Value: text,
			Rule: "must be a number of starts in a second, minute, hour or day, as in 100/m",
		}
	}
	return r, nil
}

// defaultBurst returns the greatest divisor of Starts up to [MaxBurst].
func (r StartRate) defaultBurst() int {
	for n := 1; n <= r.Starts && n <= MaxRate/MaxBurst+1; n++ {
		if r.Starts%n == 0 && r.Starts/n <= MaxBurst {
			return r.Starts / n
		}
	}
	return 1
}

// withDefaults returns the rate with its burst.
func (r StartRate) withDefaults() StartRate {
	if r.Burst == 0 && r.Starts > 0 {
		r.Burst = r.defaultBurst()
	}
	return r
}

// validate returns an [*InvalidError] if r is invalid.
func (r StartRate) validate() error {
	switch {
	case r.Starts < 1 || r.Starts > MaxRate:
		return &InvalidError{Field: "rate", Value: fmt.Sprint(r.Starts), Rule: fmt.Sprintf(
			"must be between 1 and %d; MaxRunning 0 lets no task start", MaxRate)}
	case periodNames[r.Period] == "":
		return &InvalidError{
			Field: "period", Value: r.Period.String(), Rule: "must be a second, a minute, an hour or a day"}
	case r.Burst < 1 || r.Burst > MaxBurst || r.Starts%r.Burst != 0:
		return &InvalidError{Field: "burst", Value: fmt.Sprint(r.Burst), Rule: fmt.Sprintf(
			"must be between 1 and %d, and divide the rate of %d", MaxBurst, r.Starts)}
	}
	return nil
}

// Validate returns an [*InvalidError] if l is invalid.
func (l StartLimit) Validate() error {
	if err := Kind(l.Name).Validate(); err != nil {
		return &InvalidError{Field: "name of a limit", Value: l.Name, Rule: "must have the form of a kind"}
	}
	if reserved.IsKind(Kind(l.Name)) {
		return &InvalidError{Field: "name of a limit", Value: l.Name, Rule: "must not be one of taskledger itself"}
	}
	if len(l.Kinds) == 0 {
		return &InvalidError{Field: "kinds", Rule: fmt.Sprintf(
			"must contain the kinds that the limit counts and their weights, as in {%q: 1}", l.Name)}
	}
	if l.Rate != nil {
		if err := l.Rate.withDefaults().validate(); err != nil {
			return err
		}
	}
	for _, k := range slices.Sorted(maps.Keys(l.Kinds)) {
		if err := k.Validate(); err != nil {
			return err
		}
		if reserved.IsKind(k) { // a task of a service would wait for tasks that its limit stops
			return &InvalidError{Field: "kind", Value: string(k), Rule: "must not be one of taskledger itself"}
		}
		if l.Rate != nil && (l.Kinds[k] < 0 || l.Kinds[k] > l.Rate.withDefaults().Burst) {
			return &InvalidError{Field: "weight of " + string(k), Value: fmt.Sprint(l.Kinds[k]), Rule: fmt.Sprintf(
				"must be between 1 and the rate's burst of %d", l.Rate.withDefaults().Burst)}
		}
		if l.Rate == nil && l.Kinds[k] > 1 || l.Kinds[k] < 0 {
			return &InvalidError{Field: "weight of " + string(k), Value: fmt.Sprint(l.Kinds[k]), Rule: "needs a rate"}
		}
	}
	switch {
	case l.Per != "" && l.Per != PerPartition && l.Per != PerOrderKey:
		return &InvalidError{Field: "per", Value: string(l.Per), Rule: "must be partition or order_key"}
	case l.MaxRunning == nil && l.Rate == nil:
		return &InvalidError{Field: "limit", Value: l.Name, Rule: "must have a maximum of running tasks or a rate"}
	case l.MaxRunning != nil && (*l.MaxRunning < 0 || *l.MaxRunning > MaxRunning):
		return &InvalidError{Field: "max_running", Value: fmt.Sprint(*l.MaxRunning), Rule: fmt.Sprintf(
			"must be between 0 and %d", MaxRunning)}
	}
	return nil
}

// StartLimitStatus is a limit and its use.
type StartLimitStatus struct {
	StartLimit

	Running int       // tasks that count, over all values; more than MaxRunning for a while after it was lowered
	Oldest  time.Time // since when the first of them has run; zero: none
	Waiting int64     // available tasks of the kinds, as counted by the projection
	Next    time.Time // when the rate allows the next start; zero: now, or the limit has several counts
	Actor   string    // the operator that has set it
	Updated time.Time
}

// IsFull reports whether the limit allows no start at the given time, whatever the task.
func (l StartLimitStatus) IsFull(now time.Time) bool {
	if l.MaxRunning != nil && (*l.MaxRunning == 0 || l.Per == "" && l.Running >= *l.MaxRunning) {
		return true
	}
	return l.Per == "" && l.Next.After(now)
}

// SetStartLimit sets or replaces a limit. It takes effect when db's transaction commits. actor is the operator that
// sets it; "" means the database's session_user. It returns an [*InvalidError] if l or actor is invalid. It never
// commits.
func SetStartLimit(ctx context.Context, db DB, l StartLimit, actor string) error {
	err := l.Validate()
	if err == nil {
		err = checkActor(actor)
	}
	if err != nil {
		return fmt.Errorf("set limit: %w", err)
	}
	var kinds, weights pgarray.Builder
	for _, k := range slices.Sorted(maps.Keys(l.Kinds)) {
		kinds.Add(string(k))
		weights.AddInt(int64(max(1, l.Kinds[k])))
	}
	var rate StartRate
	if l.Rate != nil {
		rate = l.Rate.withDefaults()
	}
	running := -1
	if l.MaxRunning != nil {
		running = *l.MaxRunning
	}
	_, err = db.Exec(ctx, startLimitSetSQL, l.Name, kinds.String(), weights.String(), string(l.Per), int64(running),
		int64(rate.Starts), int64(rate.Period/time.Second), int64(rate.Burst), pgquery.Optional(actor))
	return pgerr.Explain("set limit", err)
}

// RemoveStartLimit removes a limit and reports whether it existed. It takes effect when db's transaction commits. It
// never commits.
func RemoveStartLimit(ctx context.Context, db DB, name string) (bool, error) {
	tag, err := db.Exec(ctx, startLimitRemoveSQL, name)
	return tag.RowsAffected() > 0, pgerr.Explain("remove limit", err)
}

// ReadStartLimits returns at most limit limits of a kind, "" for all kinds, with the first names after a name, ordered
// by name; "" is before the first. It never commits. Errors: [*InvalidError] if limit is less than 1, [ErrNotMigrated].
func ReadStartLimits(ctx context.Context, db DB, k Kind, after string, limit int) ([]StartLimitStatus, error) {
	if err := checkLimit(limit); err != nil {
		return nil, fmt.Errorf("read limits: %w", err)
	}
	return readStartLimits(ctx, db, after, limit, k, "")
}

// FindStartLimit returns the limit with a name. It reports false if the limit does not exist. It never commits. Errors:
// [ErrNotMigrated].
func FindStartLimit(ctx context.Context, db DB, name string) (StartLimitStatus, bool, error) {
	all, err := readStartLimits(ctx, db, "", 1, "", name)
	if err != nil || len(all) == 0 {
		return StartLimitStatus{}, false, err
	}
	return all[0], true, nil
}

func readStartLimits(
	ctx context.Context, db DB, after string, limit int, k Kind, name string,
) ([]StartLimitStatus, error) {
	rows, err := db.Query(ctx, startLimitsSQL, after, int64(limit), string(k), name)
	if err != nil {
		return nil, pgerr.Explain("read limits", err)
	}
	defer rows.Close()
	var all []StartLimitStatus
	for rows.Next() {
		var l StartLimitStatus
		var kinds []string
		var weights []int
		var running, seconds int
		var rate StartRate
		var oldest, next *int64
		err := rows.Scan(&l.Name, &kinds, &weights, (*string)(&l.Per), &running, &rate.Starts, &seconds, &rate.Burst,
			&l.Actor, pgquery.Micros(&l.Updated), &l.Running, &l.Waiting, &oldest, &next)
		if err != nil {
			return nil, pgerr.Explain("read limits", err)
		}
		l.Kinds = make(map[Kind]int, len(kinds))
		for i, k := range kinds {
			l.Kinds[Kind(k)] = weights[i]
		}
		if running >= 0 {
			l.MaxRunning = &running
		}
		if rate.Starts > 0 {
			rate.Period = time.Duration(seconds) * time.Second
			l.Rate = &rate
		}
		if oldest != nil {
			l.Oldest = time.UnixMicro(*oldest).UTC()
		}
		if next != nil {
			l.Next = time.UnixMicro(*next).UTC()
		}
		all = append(all, l)
	}
	return all, pgerr.Explain("read limits", rows.Err())
}
