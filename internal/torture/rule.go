package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// rule is a promise. Its check returns one sentence for each breach.
type rule struct {
	name    string
	promise string
	check   func(*record) []string
}

// rules are the promises of the ledger that a history can refute.
var rules = []rule{
	{name: "lost", promise: "a task exists if its transaction was committed", check: lost},
	{name: "torn", promise: "a task exists if and only if its business row does", check: torn},
	{name: "phantom", promise: "nothing is left of transactions that were rolled back", check: phantom},
	{name: "illegal", promise: "versions have no gaps, transitions are legal, positions increase", check: illegal},
	{name: "unfinished", promise: "every task ends", check: unfinished},
	{name: "doubled", promise: "effects are as many as the guarantee of the kind allows", check: doubled},
	{name: "args", promise: "handlers get the args that were enqueued", check: wrongArgs},
	{name: "runs", promise: "each run that succeeds has one effect with its args, and replaced args have none",
		check: wrongRuns},
	{name: "limit", promise: "no more tasks run at a time than a limit allows", check: exceeded},
	{name: "rate", promise: "no more tasks start in an interval than a rate allows", check: tooFast},
	{name: "line", promise: "the tasks of a line begin in its order, one at a time", check: outOfLine},
	{name: "follow", promise: "what a handler enqueued exists if its effect does", check: followed},
	{name: "missing", promise: "every event appears at a subscriber", check: missing},
	{name: "skipped", promise: "a feed skips no event", check: func(r *record) []string { return r.skipped }},
	{name: "order", promise: "the events of a task appear in their order", check: disordered},
	{name: "unexplained", promise: "every end but success has an actor and a reason", check: unexplained},
	{name: "projection", promise: "projections equal a fold of the events", check: unequal},
	{name: "refused", promise: "no service ends by itself", check: func(r *record) []string { return r.ended }},
}

// violation is a broken promise.
type violation struct{ rule, text string }

func (v violation) String() string { return v.rule + ": " + v.text }

// check returns the promises that the record refutes.
func check(r *record) (all []violation) {
	for _, rule := range rules {
		found := rule.check(r)
		slices.Sort(found)
		for _, text := range found {
			all = append(all, violation{rule.name, text})
		}
	}
	return all
}

func lost(r *record) (all []string) {
	for k, c := range r.calls {
		if c.op == opCommitted && r.tasks[k] == nil && !r.isLostByPostgres(c) {
			all = append(all, fmt.Sprintf("%s was committed at %s and does not exist", k, c.at.Format("15:04:05.000")))
		}
	}
	return all
}

// isLostByPostgres reports whether a commit may be missing on an asynchronous standby that was promoted after the
// commit was acknowledged.
func (r *record) isLostByPostgres(c call) bool {
	return slices.ContainsFunc(r.deeds, func(d injection) bool {
		return d.fault.cost&losesCommits != 0 && !c.at.Before(d.began.Add(-maxReplicationDelay)) && c.at.Before(d.cured)
	})
}

func torn(r *record) (all []string) {
	for k := range r.placed {
		if r.tasks[k] == nil {
			all = append(all, fmt.Sprintf("%s has a business row and no task", k))
		}
	}
	for k := range r.tasks {
		if _, ok := r.placed[k]; !ok && k.Kind != follow.Name() {
			all = append(all, fmt.Sprintf("%s has a task and no business row", k))
		}
	}
	return all
}

func phantom(r *record) (all []string) {
	seen := make(map[ledger.Key]bool)
	for _, e := range r.seen {
		seen[e.key()] = true
	}
	for k, c := range r.calls {
		if c.op != opRolledBack && c.op != opRefused {
			continue
		}
		_, isPlaced := r.placed[k]
		if isPlaced || seen[k] || r.tasks[k] != nil || r.effects[k] != nil || r.ran[k] != nil {
			all = append(all, fmt.Sprintf("%s was %s and left something", k, c.op))
		}
	}
	return all
}

func illegal(r *record) (all []string) {
	for k, events := range r.tasks {
		var task ledger.Task
		var position ledger.Position
		for _, e := range events {
			next, err := task.Apply(e)
			if err == nil && e.Position <= position {
				err = fmt.Errorf("position %d follows %d", e.Position, position)
			}
			if err != nil {
				all = append(all, fmt.Sprintf("%s: %v", k, err))
				break
			}
			task, position = next, e.Position
		}
	}
	return all
}

func unfinished(r *record) (all []string) {
	for k, events := range r.tasks {
		if head := events[len(events)-1]; !head.Type.State().Finished() && head.Type != ledger.EventBuried {
			all = append(all, fmt.Sprintf("%s ends with %s, by %s", k, head.Type, head.Actor))
		}
	}
	return all
}

func doubled(r *record) (all []string) {
	for k, events := range r.tasks {
		successes := 0
		for _, e := range events {
			if e.Type == ledger.EventSucceeded {
				successes++
			}
		}
		effects, ran := len(r.effects[k]), len(r.ran[k])
		switch {
		case k.Kind == outside.Name() && ran < successes:
			all = append(all, fmt.Sprintf("%s succeeded without an effect", k))
		case k.Kind == never.Name() && (ran > 1 && !r.has(losesCommits) || ran < successes):
			all = append(all, fmt.Sprintf("%s has %d effects and %d successes, and may have one", k, ran, successes))
		case k.Kind != outside.Name() && k.Kind != never.Name() && effects != successes:
			all = append(all, fmt.Sprintf("%s has %d effects and %d successes", k, effects, successes))
		}
	}
	for k, effects := range r.effects {
		if r.tasks[k] == nil {
			all = append(all, fmt.Sprintf("%s has %d effects and does not exist", k, len(effects)))
		}
	}
	return all
}

func wrongArgs(r *record) (all []string) {
	for _, effects := range []map[ledger.Key][]string{r.effects, r.ran} {
		for k, nonces := range effects {
			for _, nonce := range nonces {
				if c, ok := r.calls[k]; ok && c.nonce != nonce {
					all = append(all, fmt.Sprintf("%s ran with %q, and was enqueued with %q", k, nonce, c.nonce))
				}
			}
		}
	}
	return all
}

// wrongRuns compares the effects of a task with the args of its runs that succeeded.
func wrongRuns(r *record) (all []string) {
	for k, events := range r.tasks {
		if k.Kind != again.Name() {
			continue
		}
		enqueued, succeeded := make(map[string]bool), make(map[string]int)
		nonce := ""
		for _, e := range events {
			if e.HasArgs() {
				var args job
				_ = json.Unmarshal(e.Data, &args) // without a nonce if they do not decode, so no effect matches
				nonce = args.Nonce
				enqueued[nonce] = true
			}
			if e.Type == ledger.EventSucceeded {
				succeeded[nonce]++
			}
		}
		effects := make(map[string]int)
		for _, nonce := range r.effects[k] {
			effects[nonce]++
		}
		if !maps.Equal(effects, succeeded) {
			text := fmt.Sprintf("%s has the effects %v, and its runs succeeded with %v", k, effects, succeeded)
			all = append(all, text)
		}
		for _, c := range r.runs[k] {
			if !enqueued[c.nonce] && !r.isLostByPostgres(c) {
				all = append(all, fmt.Sprintf("%s was enqueued with %q, and no event has it", k, c.nonce))
			}
		}
	}
	return all
}

func followed(r *record) (all []string) {
	for k := range r.tasks {
		cause := ledger.Key{Kind: once.Name(), BizID: k.BizID}
		if k.Kind == follow.Name() && r.effects[cause] == nil {
			all = append(all, fmt.Sprintf("%s exists, and %s has no effect", k, cause))
		}
	}
	for k, events := range r.tasks {
		args, err := events[0].Payload()
		if err != nil || r.effects[k] == nil || !strings.Contains(string(args), `"follow":true`) {
			continue
		}
		if effect := (ledger.Key{Kind: follow.Name(), BizID: k.BizID}); r.tasks[effect] == nil {
			all = append(all, fmt.Sprintf("%s has an effect, and %s does not exist", k, effect))
		}
	}
	return all
}

func missing(r *record) (all []string) {
	if r.has(losesSubscriptions) {
		return nil
	}
	seen := make(map[string]bool)
	for _, e := range r.seen {
		seen[e.Event] = true
	}
	for k, events := range r.tasks {
		for _, e := range events {
			if !seen[e.ID()] {
				all = append(all, fmt.Sprintf("%s version %d (%s) did not appear", k, e.Version, e.Type))
				break
			}
		}
	}
	return all
}

// disordered compares the order in which events first appeared on the stream, as the subscriber received it. A stream
// may be lost before the subscriber has received a message, although it has received later ones: this leaves a hole in
// the sequences. For each hole in a stream, one version may appear later, on the next stream.
func disordered(r *record) (all []string) {
	exists := make(map[string]bool)
	ids := make(map[ledger.Key][]string) // of the events, by version
	for k, events := range r.tasks {
		for _, e := range events {
			exists[e.ID()] = true
			ids[k] = append(ids[k], e.ID())
		}
	}
	holes := r.holes()
	first, isLate := make(map[string]bool), make(map[string]bool)
	newest := make(map[ledger.Key]ledger.Version)
	for _, e := range r.seen {
		if first[e.Event] || !exists[e.Event] && r.has(losesCommits) {
			continue
		}
		first[e.Event] = true
		k := e.key()
		if !exists[e.Event] {
			all = append(all, fmt.Sprintf("%s appeared and is not in the ledger", e.Event))
		}
		isGap := false
		for v := newest[k] + 1; v < e.Version && int(v) <= len(ids[k]); v++ {
			isGap = isGap || holes[e.Stream] <= 0
			isLate[ids[k][v-1]] = holes[e.Stream] > 0
			holes[e.Stream]--
		}
		if e.Version <= newest[k] && !isLate[e.Event] || isGap && !r.has(losesSubscriptions) {
			all = append(all, fmt.Sprintf("%s version %d appeared after version %d", k, e.Version, newest[k]))
		}
		newest[k] = max(newest[k], e.Version)
	}
	return all
}

// holes returns how many messages of each stream the subscriber has not received, although it received later ones.
func (r *record) holes() map[time.Time]int {
	last, seen := make(map[time.Time]uint64), make(map[time.Time]map[uint64]bool)
	for _, e := range r.seen {
		if seen[e.Stream] == nil {
			seen[e.Stream] = make(map[uint64]bool)
		}
		seen[e.Stream][e.Sequence] = true
		last[e.Stream] = max(last[e.Stream], e.Sequence)
	}
	holes := make(map[time.Time]int)
	for stream, sequences := range seen {
		holes[stream] = int(last[stream]) - len(sequences)
	}
	return holes
}

func unexplained(r *record) (all []string) {
	for k, events := range r.tasks {
		head := events[len(events)-1]
		isEnd := head.Type.State().Finished() || head.Type == ledger.EventBuried
		hasReason := head.Actor != "" && strings.Contains(string(head.Data), "reason")
		if isEnd && head.Type != ledger.EventSucceeded && !hasReason {
			all = append(all, fmt.Sprintf("%s ends with %s by %q: %s", k, head.Type, head.Actor, head.Data))
		}
	}
	return all
}

func unequal(r *record) (all []string) {
	for _, d := range r.different {
		all = append(all, d.String())
	}
	return all
}
