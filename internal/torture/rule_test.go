package main

import (
	"slices"
	"testing"
	"time"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/projector"
)

// key names a task of the histories of this file.
func key(k ledger.TypedKind[job], id ledger.BizID) ledger.Key { return k.Key(id) }

// The tasks of [healthy], and one that was rolled back.
var (
	written   = key(once, "written")
	following = key(follow, "written")
	called    = key(outside, "called")
	mailed    = key(never, "mailed")
	cancelled = key(once, "cancelled")
	undone    = key(once, "undone")
	rerun     = key(again, "rerun")
)

// healthy returns the record of a run in which every promise held.
func healthy() *record {
	r := newRecord(nil)
	task := func(k ledger.Key, args string, types ...ledger.EventType) {
		for i, t := range types {
			e := ledger.Event{
				Key: k, Version: ledger.Version(i + 1), Position: ledger.Position(len(r.seen) + 1), Type: t,
				RecordedAt: time.UnixMicro(int64(len(r.seen))), Actor: "somebody", Shard: k.BizID.Shard(),
				Data: []byte(args),
			}
			if t == ledger.EventStarted || len(types) == 2 && t == ledger.EventSucceeded {
				e.Attempt = 1
			}
			if i > 0 && types[i-1] == ledger.EventStarted {
				e.Attempt = 1
			}
			if i > 0 {
				e.Data = []byte(`{"reason": "drawn"}`)
			}
			r.tasks[k] = append(r.tasks[k], e)
			r.seen = append(r.seen, entry{Kind: k.Kind, BizID: k.BizID, Event: e.ID(), Version: e.Version})
		}
		if k != following {
			r.calls[k] = call{op: opCommitted, nonce: "right"}
			r.placed[k] = "right"
		}
	}
	task(written, `{"follow":true}`, ledger.EventEnqueued, ledger.EventStarted, ledger.EventSucceeded)
	task(following, `{}`, ledger.EventEnqueued, ledger.EventSucceeded)
	task(called, `{}`, ledger.EventEnqueued, ledger.EventSucceeded)
	task(mailed, `{}`, ledger.EventEnqueued, ledger.EventSucceeded)
	task(rerun, `{"nonce":"right"}`, ledger.EventEnqueued, ledger.EventSucceeded)
	delete(r.calls, rerun)
	for _, e := range []ledger.Event{
		{Type: ledger.EventScheduled, Run: 2, Data: []byte(`{"nonce":"replaced"}`)},
		{Type: ledger.EventEnqueued, Run: 2, Data: []byte(`{"nonce":"second"}`)},
		{Type: ledger.EventSucceeded, Attempt: 1},
	} {
		e.Key, e.Shard, e.Actor = rerun, rerun.BizID.Shard(), "somebody"
		e.Version, e.Position = ledger.Version(len(r.tasks[rerun])+1), ledger.Position(len(r.seen)+1)
		e.RecordedAt = time.UnixMicro(int64(len(r.seen)))
		r.tasks[rerun] = append(r.tasks[rerun], e)
		r.seen = append(r.seen, entry{Kind: rerun.Kind, BizID: rerun.BizID, Event: e.ID(), Version: e.Version})
	}
	r.runs[rerun] = []call{{op: opRun, nonce: "second"}}
	r.effects[rerun] = []string{"right", "second"}
	task(cancelled, `{}`, ledger.EventEnqueued, ledger.EventCancelled)
	r.calls[undone] = call{op: opRolledBack, nonce: "right"}
	r.effects[written], r.effects[following] = []string{"right"}, []string{"right"}
	r.ran[called], r.ran[mailed] = []string{"right", "right"}, []string{"right"}
	return r
}

// asynchronous is the promotion of an asynchronous standby.
var asynchronous = injection{fault: fault{name: "promote-async", cost: losesCommits}, began: time.Unix(0, 0)}

// Each breach of a promise is found by its rule and by no other, unless it breaks other promises as well.
func TestRulesFindBreaches(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		breach func(*record)
		want   []string
	}{
		{name: "none", breach: func(*record) {}},
		{name: "a committed task is gone", breach: func(r *record) {
			delete(r.tasks, called)
			delete(r.placed, called)
			r.seen = without(r.seen, called)
		}, want: []string{"lost"}},
		{name: "a committed task is gone with its primary", breach: func(r *record) {
			r.deeds = []injection{asynchronous}
			r.calls[called] = call{op: opCommitted, at: time.Unix(-1, 0), nonce: "right"}
			r.deeds[0].cured = time.Unix(1, 0)
			delete(r.tasks, called)
			delete(r.placed, called)
		}},
		{name: "only the business row was committed", breach: func(r *record) {
			r.placed[undone], r.calls[undone] = "right", call{op: opUnknown}
		}, want: []string{"torn"}},
		{name: "only the task was committed", breach: func(r *record) { delete(r.placed, mailed) },
			want: []string{"torn"}},
		{name: "a message of a transaction that was rolled back", breach: func(r *record) {
			r.seen = append(r.seen, entry{Kind: undone.Kind, BizID: undone.BizID, Event: "ghost", Version: 1})
		}, want: []string{"phantom", "order"}},
		{name: "more tasks run than a limit allows", breach: func(r *record) {
			r.limits = []ledger.StartLimit{{
				Name: "partner-x", Kinds: map[ledger.Kind]int{once.Name(): 1}, MaxRunning: new(0)}}
		}, want: []string{"limit"}},
		{name: "as many tasks run as a limit allows", breach: func(r *record) {
			r.limits = []ledger.StartLimit{{
				Name: "partner-x", Kinds: map[ledger.Kind]int{once.Name(): 1}, MaxRunning: new(1)}}
		}},
		{name: "more attempts without a recorded start than a limit allows", breach: func(r *record) {
			r.tasks[rerun][4].Data = []byte(`{"started_at":"1969-12-31T23:59:59Z"}`)
			r.limits = []ledger.StartLimit{{
				Name: "partner-x", Kinds: map[ledger.Kind]int{again.Name(): 1}, MaxRunning: new(0)}}
		}, want: []string{"limit"}},
		{name: "a turn before an earlier task", breach: func(r *record) { r.jumped = []string{"x"} },
			want: []string{"line"}},
		{name: "a gap in the versions", breach: func(r *record) {
			r.tasks[written] = slices.Delete(r.tasks[written], 1, 2)
		}, want: []string{"illegal", "order"}},
		{name: "positions decrease", breach: func(r *record) { r.tasks[written][2].Position = 1 },
			want: []string{"illegal"}},
		{name: "a task did not end", breach: func(r *record) {
			r.tasks[cancelled] = r.tasks[cancelled][:1]
			r.seen = r.seen[:len(r.seen)-1]
		}, want: []string{"unfinished"}},
		{name: "two effects", breach: func(r *record) { r.effects[written] = []string{"right", "right"} },
			want: []string{"doubled"}},
		{name: "no effect", breach: func(r *record) { delete(r.effects, following) }, want: []string{"doubled"}},
		{name: "an effect of a cancelled task", breach: func(r *record) { r.effects[cancelled] = []string{"right"} },
			want: []string{"doubled"}},
		{name: "an effect outside is missing", breach: func(r *record) { delete(r.ran, called) },
			want: []string{"doubled"}},
		{name: "AtMostOnce ran twice", breach: func(r *record) { r.ran[mailed] = []string{"right", "right"} },
			want: []string{"doubled"}},
		{name: "other args", breach: func(r *record) { r.effects[written] = []string{"forged"} },
			want: []string{"args"}},
		{name: "the args of another run", breach: func(r *record) { r.effects[rerun] = []string{"right", "right"} },
			want: []string{"runs"}},
		{name: "an effect of replaced args", breach: func(r *record) {
			r.effects[rerun] = []string{"right", "replaced", "second"}
		}, want: []string{"doubled", "runs"}},
		{name: "a committed run is gone", breach: func(r *record) {
			r.runs[rerun] = append(r.runs[rerun], call{op: opRun, nonce: "third"})
		}, want: []string{"runs"}},
		{name: "a run begins while another one runs", breach: func(r *record) {
			events := r.tasks[rerun]
			events[1].Type, events[1].Attempt = ledger.EventStarted, 1
			events[2].Type = ledger.EventEnqueued
			r.effects[rerun] = []string{"second"}
		}, want: []string{"illegal"}},
		{name: "what a handler enqueued is gone", breach: func(r *record) {
			delete(r.tasks, following)
			delete(r.effects, following)
			r.seen = without(r.seen, following)
		}, want: []string{"follow"}},
		{name: "an event did not appear", breach: func(r *record) { r.seen = r.seen[:len(r.seen)-1] },
			want: []string{"missing"}},
		{name: "a feed skipped events", breach: func(r *record) { r.skipped = []string{"relay-1: 3 events"} },
			want: []string{"skipped"}},
		{name: "version 3 before version 2", breach: func(r *record) { r.seen[1], r.seen[2] = r.seen[2], r.seen[1] },
			want: []string{"order"}},
		{name: "the stream was lost with a message that the subscriber had not received", breach: func(r *record) {
			loseStream(r, 2)
		}},
		{name: "more versions appear late than the lost stream has holes", breach: func(r *record) {
			loseStream(r, 2)
			r.seen[0].Sequence = 2
		}, want: []string{"order"}},
		{name: "a later message is repeated", breach: func(r *record) { r.seen = append(r.seen, r.seen[1]) }},
		{name: "an end without a reason", breach: func(r *record) { r.tasks[cancelled][1].Data = nil },
			want: []string{"unexplained"}},
		{name: "a projection differs", breach: func(r *record) { r.different = []projector.Difference{{Subject: "x"}} },
			want: []string{"projection"}},
		{name: "a service ended", breach: func(r *record) { r.ended = []string{"relay-1: refused"} },
			want: []string{"refused"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := healthy()
			test.breach(r)
			var got []string
			for _, v := range check(r) {
				if !slices.Contains(got, v.rule) {
					got = append(got, v.rule)
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("violated %v, want %v: %v", got, test.want, check(r))
			}
		})
	}
}

// loseStream has the subscriber receive only version 3 of a task from a first stream, as the message with a sequence,
// and everything from the next one.
func loseStream(r *record, hole int) {
	lost := r.seen[2]
	lost.Sequence = uint64(hole) + 1
	for i := range r.seen {
		r.seen[i].Stream, r.seen[i].Sequence = time.Unix(100, 0), uint64(i+1)
	}
	r.seen = slices.Insert(r.seen, 0, lost)
}

// without returns the messages of other tasks.
func without(seen []entry, k ledger.Key) []entry {
	return slices.DeleteFunc(seen, func(e entry) bool { return e.key() == k })
}

// Gaps are measured between completions, also over the edges of the time that is asked for.
func TestLongestGap(t *testing.T) {
	t.Parallel()
	at := func(seconds ...int64) (all []time.Time) {
		for _, s := range seconds {
			all = append(all, time.Unix(s, 0))
		}
		return all
	}
	for _, test := range []struct {
		name        string
		moments     []time.Time
		from, until int64
		want        time.Duration
	}{
		{name: "none", from: 10, until: 15, want: 5 * time.Second},
		{name: "inside", moments: at(1, 2, 9, 11), from: 2, until: 10, want: 7 * time.Second},
		{name: "begins before", moments: at(1, 8, 9, 10), from: 5, until: 10, want: 7 * time.Second},
		{name: "ends later", moments: at(1, 2, 20), from: 1, until: 5, want: 18 * time.Second},
		{name: "unordered", moments: at(9, 1, 5), from: 1, until: 9, want: 4 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := longestGap(test.moments, time.Unix(test.from, 0), time.Unix(test.until, 0)); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// A rate is exceeded by one start more than its burst in a window.
func TestTooFast(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		starts int
		every  time.Duration
		isFast bool
	}{
		{name: "a burst", starts: 2, every: 0},
		{name: "a burst and one", starts: 3, every: 0, isFast: true},
		{name: "a little too fast for long", starts: 20, every: 499 * time.Millisecond, isFast: true},
		{name: "as fast as allowed", starts: 20, every: 500 * time.Millisecond},
	} {
		r := newRecord(nil)
		r.limits = []ledger.StartLimit{{
			Name: "partner-x", Kinds: map[ledger.Kind]int{once.Name(): 1},
			Rate: &ledger.StartRate{Starts: 2, Period: time.Second, Burst: 2}}}
		for i := range test.starts {
			e := ledger.Event{Type: ledger.EventStarted, RecordedAt: time.Unix(0, 0).Add(time.Duration(i) * test.every)}
			r.tasks[written] = append(r.tasks[written], e)
		}
		if found := tooFast(r); len(found) > 0 != test.isFast {
			t.Errorf("%s: %v", test.name, found)
		}
	}
}
