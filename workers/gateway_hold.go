package workers

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/lease"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/remote"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers/internal/attempt"
)

//go:embed sql/elsewhere_heads.sql
var elsewhereHeadsSQL string

// elsewhere is an attempt with the last event of its task.
type elsewhere struct {
	fence
	isFound bool // the offered event is in the ledger
	last    ledger.EventType
	version ledger.Version
	number  ledger.Attempt
	actor   string         // of the last event
	begunBy string         // actor of the first event of the attempt
	args    ledger.Version // of the event with the args of the task's run
	left    time.Duration  // of the lease of actor, if the attempt runs
	age     time.Duration  // of the last event
}

// read reads the last events of tasks.
func (g *gateway) read(ctx context.Context, fences []fence) ([]elsewhere, error) {
	all := make([]elsewhere, len(fences))
	var kinds, ids, names, offered, before pgarray.Builder
	for i, f := range fences {
		all[i].fence = f
		kinds.Add(string(f.Kind))
		ids.Add(string(f.BizID))
		names.Add(f.worker)
		offered.AddInt(int64(f.offered))
		before.AddInt(int64(f.version))
	}
	rows, err := g.config.DB.Query(ctx, elsewhereHeadsSQL,
		kinds.String(), ids.String(), names.String(), offered.String(), before.String())
	if err != nil {
		return nil, pgerr.Explain("read attempts of another process", err)
	}
	defer rows.Close()
	for rows.Next() {
		var e elsewhere
		var i int
		var left, age int64
		var offeredAt time.Time
		err := rows.Scan(&i, (*int32)(&e.version), (*string)(&e.last), (*int32)(&e.number), &e.actor, &e.begunBy,
			(*int32)(&e.args), &left, &age, pgquery.Micros(&offeredAt))
		if err != nil {
			return nil, pgerr.Explain("read attempts of another process", err)
		}
		e.fence, e.isFound = fences[i-1], offeredAt.Equal(fences[i-1].offeredAt)
		e.left, e.age = time.Duration(left)*time.Millisecond, time.Duration(age)*time.Millisecond
		all[i-1] = e
	}
	return all, pgerr.Explain("read attempts of another process", rows.Err())
}

// isOfRun reports whether the task is in the run of the attempt. Attempts are counted from 1 in each run.
func (e elsewhere) isOfRun() bool { return e.args <= e.fence.version }

// isOwn reports whether the last event of the task is one of the attempt.
func (e elsewhere) isOwn() bool { return e.number == e.attempt && e.begunBy == e.worker && e.isOfRun() }

// runs reports whether the attempt has begun and not ended.
func (e elsewhere) runs() bool {
	return e.isFound && (e.last == ledger.EventStarted || e.last == ledger.EventProgressed) && e.isOwn()
}

// isMoved reports whether the attempt runs under the lease of its session.
func (e elsewhere) isMoved() bool { return e.runs() && e.actor != e.worker }

// holder returns the id of the worker whose lease keeps the attempt.
func (e elsewhere) holder() string {
	if e.isMoved() {
		return e.actor
	}
	return e.worker
}

// isNext reports whether the last event of the task precedes the attempt, whose start is not recorded.
func (e elsewhere) isNext() bool {
	return e.isFound && e.last.State() == ledger.StateAvailable && e.version == e.fence.version &&
		e.number == e.attempt-1
}

// end returns why the attempt is over, "" if it is not. isOwn: its worker has ended it.
func (e elsewhere) end() (reason remote.End, isOwn bool) {
	switch isOwn = e.isOwn(); {
	case !e.isFound:
		return remote.Unknown, false
	case e.last == ledger.EventCancelled:
		return remote.Cancelled, false
	case e.last == ledger.EventExpired:
		return remote.Deadline, false
	case e.fence.isOver() && e.isDeadline:
		return remote.Deadline, false
	case e.fence.isOver():
		return remote.Timeout, false
	case e.runs(), e.isNext():
		return "", false
	}
	return remote.Fenced, isOwn
}

// holdElsewhere renews attempts of a session that this process does not have. It returns finished ones.
func (g *gateway) holdElsewhere(ctx context.Context, caller, session string, sealed []string) []remote.Ended {
	var ended []remote.Ended
	open, err := g.openAll(ctx, caller, sealed)
	var fences []fence
	var texts []string
	for i, text := range sealed {
		if f, ok := open[i]; ok && f.session == sessionHash(session) {
			fences, texts = append(fences, f), append(texts, text)
		} else if err == nil {
			ended = append(ended, remote.Ended{Fence: text, Reason: remote.Unknown})
		}
	}
	if len(fences) == 0 {
		return ended
	}
	all, err := g.read(ctx, fences)
	if err != nil { // the next heartbeat may reach the database
		g.config.Logger.WarnContext(ctx, "cannot renew attempts of another process", "error", err)
		return ended
	}
	var holds []string
	var held []elsewhere
	for i, e := range all {
		reason, isOwn := e.end()
		switch {
		case reason == "":
			holds, held = append(holds, e.fence.number), append(held, e)
		case !isOwn:
			ended = append(ended, remote.Ended{Key: e.Key, Fence: texts[i], Reason: reason})
			if reason == remote.Timeout || reason == remote.Deadline {
				g.cut(ctx, e.fence)
			}
		}
	}
	if len(holds) > 0 {
		err = lease.HoldSession(ctx, g.config.DB, caller+"/"+session, holds, g.config.Term)
	}
	if err = errors.Join(err, g.keepMoved(ctx, caller, held, false)); err != nil {
		g.config.Logger.WarnContext(ctx, "cannot renew attempts of another process", "error", err)
	}
	return ended
}

// releaseElsewhere gives back attempts of a session that this process does not have, and returns their number.
func (g *gateway) releaseElsewhere(ctx context.Context, caller, session string, sealed []string) (int, error) {
	open, err := g.openAll(ctx, caller, sealed)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, f := range open {
		if f.session != sessionHash(session) {
			continue
		}
		given := errReleased
		if f.isOnce { // its handler may have begun
			given = fmt.Errorf("%w how it ended, and has given it back", errLost)
		}
		state, err := g.endOne(ctx, f, remote.Outcome{Err: given})
		if err != nil {
			return n, err
		}
		if state != "" {
			n++
		}
	}
	return n, nil
}

// progressElsewhere reports how far an attempt is that this process does not have. It returns whether the attempt is at
// work, and whether its fence is valid. While the process that gave it is alive, the report is only published: an event
// of another process would fence the attempt there. Afterwards it is recorded, unless the last event is too recent.
func (g *gateway) progressElsewhere(
	ctx context.Context, caller string, a remote.AttemptRef, report json.RawMessage,
) (isAtWork, wasGiven bool, err error) {
	text, err := marshal("progress", report)
	if err != nil {
		return false, false, err
	}
	open, err := g.openAll(ctx, caller, []string{a.Fence})
	f, ok := open[0]
	if err != nil || !ok || f.Key != a.Key || f.attempt != a.Attempt {
		return false, false, err
	}
	all, err := g.read(ctx, []fence{f})
	if err != nil {
		return false, true, err
	}
	if reason, _ := all[0].end(); reason != "" {
		return false, true, nil
	}
	publishProgress(g.config.NATS, a.Key, a.Attempt, text)
	switch e := all[0]; {
	case !e.isMoved() && e.left >= g.config.Term/2,
		e.runs() && e.age < attempt.ProgressEvery(time.Since(f.begun)):
		return true, true, nil
	}
	version, err := g.versionOf(ctx, f)
	if err != nil || version == 0 {
		return false, true, err
	}
	_, err = ledger.Append(ctx, g.config.DB, ledger.AppendRequest{
		Key: f.Key, Expected: version, Type: ledger.EventProgressed, Actor: all[0].holder(),
		Data: attempt.ProgressData{Progress: text}.JSON(),
	})
	if ledger.IsConflict(err) { // another report came first
		err = nil
	}
	return true, true, err
}

// publishProgress publishes a report without waiting. A later one replaces a lost one.
func publishProgress(nc *nats.Conn, k ledger.Key, n ledger.Attempt, report json.RawMessage) {
	data, _ := json.Marshal(struct { // report is valid JSON
		BizID    ledger.BizID    `json:"biz_id"`
		Attempt  ledger.Attempt  `json:"attempt"`
		Progress json.RawMessage `json:"progress"`
	}{k.BizID, n, report})
	_ = nc.Publish(stream.PrefixOf(nc).ProgressSubject(k.Kind), data)
}
