package reconciler

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/taskledger/taskledger/internal/lease"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers/internal/atmostonce"
)

//go:embed sql/lost.sql
var lostSQL string

// lostTask is a task whose message is gone.
type lostTask struct {
	id        ledger.BizID
	version   ledger.Version
	isRunning bool
	releases  int            // in a row, by a reconciler, so far
	waiting   time.Duration  // since the last one
	waking    ledger.Version // of the event whose message is gone
	isAlive   bool           // it is running, and its worker lives
}

const (
	// freeReleases is how often in a row a task is released after the grace alone.
	freeReleases = 3
	// maxReleaseDelay bounds the delay between later ones.
	maxReleaseDelay = time.Hour
	// maxReported is how many repeated releases of a kind a pass reports.
	maxReported = 20
)

// releaseDelay returns how long a task must have been available to be released once more. It doubles with each release
// in a row: if a message vanishes each time, another one helps as little, and events must not grow without end.
func (r *Reconciler) releaseDelay(releases int) time.Duration {
	if releases < freeReleases {
		return r.config.Grace
	}
	return min(r.config.Grace<<(releases-freeReleases+1), maxReleaseDelay)
}

// reconcile makes the lost ones among tasks of a kind available again. To the live worker of a running one it sends the
// message again.
func (r *Reconciler) reconcile(ctx context.Context, k *servedKind, ids []string) error {
	if len(ids) == 0 || k.published[ofReleased].snapshot == "" && k.published[ofEnqueued].snapshot == "" {
		return nil
	}
	lost, err := r.findLost(ctx, k, ids)
	var wake []lostTask
	if err != nil {
		return fmt.Errorf("find lost tasks of %s: %w", k.name, err)
	}
	lost = slices.DeleteFunc(lost, func(t lostTask) bool {
		if t.isAlive {
			wake = append(wake, t)
		}
		return t.isAlive || t.releases >= freeReleases && t.waiting < r.releaseDelay(t.releases)
	})
	for group := range slices.Chunk(lost, ledger.AppendBatch) {
		if err := r.release(ctx, k.name, group); err != nil {
			return err
		}
	}
	return r.wakeAll(ctx, k.name, wake)
}

// findLost returns the lost ones among tasks of a kind.
func (r *Reconciler) findLost(ctx context.Context, k *servedKind, ids []string) (lost []lostTask, err error) {
	first, again := k.published[ofEnqueued], k.published[ofReleased]
	rows, err := r.config.DB.Query(ctx, lostSQL, string(k.name), pgarray.Of(ids...),
		first.snapshot, pgquery.Time(first.before), again.snapshot, pgquery.Time(again.before),
		r.config.Grace.Milliseconds())
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		var version, releases, waking int32
		var isRunning, isAlive bool
		var waiting int64
		if err := rows.Scan(&id, &version, &isRunning, &releases, &waiting, &waking, &isAlive); err != nil {
			return nil, err
		}
		lost = append(lost, lostTask{
			id: ledger.BizID(id), version: ledger.Version(version), isRunning: isRunning,
			releases: int(releases), waiting: time.Duration(waiting) * time.Millisecond,
			waking: ledger.Version(waking), isAlive: isAlive,
		})
	}
	return lost, rows.Err()
}

// release makes lost tasks available again, except those that have moved on meanwhile, or that an open
// transaction has appended to.
func (r *Reconciler) release(ctx context.Context, kind ledger.Kind, lost []lostTask) error {
	requests := make([]ledger.AppendRequest, len(lost))
	for i, t := range lost {
		var err error
		if requests[i], err = r.request(ctx, ledger.Key{Kind: kind, BizID: t.id}, t); err != nil {
			return err
		}
	}
	var failed error
	reported := 0
	var news releaseLog
	defer func() { news.write(ctx, r.config.Logger, kind) }()
	for i, result := range ledger.AppendEach(ctx, r.config.DB, requests) {
		switch {
		case result.Err == nil:
			q := requests[i]
			news.add(q)
			n := lost[i].releases + 1
			if n >= freeReleases && q.Type == ledger.EventReleased && reported < maxReported {
				reported++
				failed = cmp.Or(failed, r.report(ctx, q.Key, n))
			}
		case !ledger.IsConflict(result.Err) && !pgerr.Is(result.Err, pgerr.LockNotAvailable) && failed == nil:
			failed = result.Err
		}
	}
	return failed
}

// report records that a task is released again and again, until it would be released once more.
func (r *Reconciler) report(ctx context.Context, k ledger.Key, releases int) error {
	return lease.Renew(ctx, r.config.DB, lease.Released(k), "reconciler", r.releaseDelay(releases)+reportedLonger,
		struct {
			Kind  ledger.Kind  `json:"kind"`
			BizID ledger.BizID `json:"biz_id"`
			Times int          `json:"times"`
		}{k.Kind, k.BizID, releases})
}

// reportedLonger is how much longer than its delay a repeated release is reported: passes take time.
const reportedLonger = time.Minute

// request returns the append that makes a lost task available again. A task that must not run twice is buried.
func (r *Reconciler) request(ctx context.Context, k ledger.Key, t lostTask) (ledger.AppendRequest, error) {
	request := ledger.AppendRequest{Key: k, Expected: t.version, Type: ledger.EventReleased, Actor: "reconciler"}
	reason := "its message has gone"
	if t.isRunning {
		wasOnce, err := atmostonce.HasStarted(ctx, r.config.DB, k)
		if err != nil {
			return request, err
		}
		request.Type, reason = ledger.EventInterrupted, "its worker and its message have gone"
		if wasOnce {
			request.Type, reason = ledger.EventBuried, atmostonce.ReasonUnknown
		}
	}
	var err error
	request.Data, err = json.Marshal(struct {
		Reason string `json:"reason"`
	}{reason})
	return request, err
}
