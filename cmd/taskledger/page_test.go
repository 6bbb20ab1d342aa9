package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// pagedList is a list that has pages.
type pagedList struct {
	args string // LAST is the position of the last event
	list string // the member of the answer
	name string // the members of an element that name it, with commas between them
	want []string
}

// pagedLists are all lists that have pages, by their commands, with the elements that fillLists makes.
var pagedLists = map[string]pagedList{
	"taskledger show workers":     {list: "workers", name: "id", want: []string{"w 1", "w/2", "w3"}},
	"taskledger show schedules":   {list: "schedules", name: "schedule.name", want: []string{"s1", "s2", "s3"}},
	"taskledger show subscribers": {list: "subscribers", name: "name", want: []string{"coupons", "s1", "s2", "s3"}},
	"taskledger show kinds": {
		list: "kinds", name: "kind", want: []string{"a", "d", "d/e", "f%2Fg", "k1", "k2", "k3", "seal", "t"},
	},
	"taskledger show limits": {list: "limits", name: "name", want: []string{"k1", "k2", "k3"}},
	"taskledger show parked": {list: "parked", name: "position", want: []string{"7", "8", "9"}},
	"taskledger show illegal": {
		list: "illegal", name: "key.kind,key.biz_id,version",
		want: []string{"a 1/2 1", "a 1/2 2", "a/1 2 1", "a/1 2/3 1", "b%2Fc x 1"},
	},
	"taskledger show parked --subscriber": {
		args: "coupons", list: "parked", name: "key.kind,key.biz_id,version",
		want: []string{"a 1/2 1", "a 1/2 2", "a/1 2 1", "a/1 2/3 1", "b%2Fc x 1"},
	},
	"taskledger prove": {
		args: "seal s", list: "events", name: "version", want: []string{"1", "2", "3"},
	},
	"taskledger show tasks": {
		args: "--tag t", list: "tasks", name: "kind,biz_id", want: []string{"t 3", "t 2", "t 1"},
	},
	"taskledger events": {
		args: "--kind t", list: "events", name: "biz_id", want: []string{"1", "2", "3"},
	},
	"taskledger state": {
		args: "LAST --list --state dead", list: "tasks", name: "kind,biz_id",
		want: []string{"d e", "d/e 1", "d/e 1/2", "f%2Fg 1"},
	},
	"taskledger show dead": {
		list: "groups", name: "kind", want: []string{"d", "d/e", "f%2Fg"},
	},
}

// unpaged are the other commands with --limit, each with the reason.
var unpaged = map[string]string{
	"taskledger show alarms": "lists the newest of each receiver: the script alarm has it",
	"taskledger show stream": "is whole",
	"taskledger show tokens": "is whole",
	"taskledger history":     "continues with earlier events, by --before: the script task has it",
	"taskledger tree":        "each node has its own cut: TestTreeReportsItsCuts",
	"taskledger release":     "changes tasks, and reports how many",
	"taskledger bury":        "changes tasks, and reports how many",
	"taskledger cancel":      "changes tasks, and reports how many",
	"taskledger reschedule":  "changes tasks, and reports how many",
}

// fillLists makes the elements of pagedLists. Some kinds have a slash: a role with INSERT can forge them.
const fillLists = `
	select taskledger.seek_feed('coupons', 0);
	insert into taskledger.lease (name, holder, alive_until, detail)
	select 'worker/' || w, w, clock_timestamp() + interval '1 hour', '{"kinds":["a"],"shards":"0-31"}'
	  from unnest(array['w 1', 'w/2', 'w3']) w;
	insert into taskledger.schedule (name, kind, every_ms, anchor, missed, missed_limit, overlap, actor)
	select 's' || n, 'report', 3600000, now(), 'one', 1, 'skip', 'alice' from generate_series(1, 3) n;
	insert into taskledger.pause (kind, actor, reason) select 'k' || n, 'a', 'b' from generate_series(1, 3) n;
	insert into taskledger.kind_limit (kind, max_waiting, policy, retry_after_ms, actor)
	select 'k' || n, 1, 'reject', 1000, 'alice' from generate_series(1, 3) n;
	insert into taskledger.parked (position, kind, biz_id, version, reason)
	select n, 'a', n::text, 1, 'too large' from generate_series(7, 9) n;
	insert into taskledger.subscriber_parked (reader, kind, biz_id, version, position, error, failures)
	select 'subscriber/coupons', k, b, v, v, 'bad', 1
	  from (values ('a', '1/2', 1), ('a', '1/2', 2), ('a/1', '2', 1), ('a/1', '2/3', 1), ('b%2Fc', 'x', 1)) e(k, b, v);
	insert into taskledger.illegal_event (kind, biz_id, version, reason)
	select p.kind, p.biz_id, p.version, 'bad' from taskledger.subscriber_parked p;
	select taskledger.enqueue('t', n::text, meta => '{"tags":["t"]}') from generate_series(1, 3) n;
	select taskledger.enqueue('seal', 's');
	insert into taskledger.event (version, attempt, shard, type, kind, biz_id, recorded_at)
	select v, 0, 0, (array['enqueued', 'buried'])[v]::taskledger.event_type, k, b, now()
	  from (values ('d', 'e'), ('d/e', '1'), ('d/e', '1/2'), ('f%2Fg', '1')) e(k, b), generate_series(1, 2) v
	union all
	select v, 0, taskledger.shard_of('s'), (array['enqueued', 'buried', 'released'])[v]::taskledger.event_type, 'seal',
	       's', now()
	  from generate_series(2, 3) v`

// Each list has pages that together have each element once. A page that is cut reports it, in each format.
func TestListsContinue(t *testing.T) {
	t.Parallel()
	environment := map[string]string{envDatabaseURL: ledgertest.URL(t, ledgertest.Owner)}
	pool, err := pgxpool.New(t.Context(), environment[envDatabaseURL])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if _, err := pool.Exec(t.Context(), fillLists); err != nil {
		t.Fatal(err)
	}
	var last string
	if err := pool.QueryRow(t.Context(), "select max(position)::text from taskledger.event").Scan(&last); err != nil {
		t.Fatal(err)
	}
	(&servicetest.Bundle{T: t, DB: pool, AllAsOwner: true}).Project()
	list := func(args ...string) (stdout, stderr string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		stdout, stderr, exit := runUntil(ctx, t, environment, func() {}, args...)
		if exit != exitOK {
			t.Errorf("%s: exit %d: %s", args, exit, stderr)
		}
		return stdout, stderr
	}
	list("seal")
	for _, name := range []string{"s1", "s2", "s3"} {
		list("seek", "subscriber", name, "--beginning")
	}
	walk(newApp().newRootCommand(), func(cmd *cobra.Command) {
		for _, path := range namesOf(cmd) {
			_, found := pagedLists[path]
			if hasLimit := cmd.Flags().Lookup("limit") != nil; hasLimit != found && unpaged[path] == "" {
				t.Errorf("%s: has --limit: %t, is a list here: %t", path, hasLimit, found)
			}
		}
	})
	for path, l := range pagedLists {
		args := append(strings.Fields(path)[1:], strings.Fields(strings.ReplaceAll(l.args, "LAST", last))...)
		args = append(args, "--limit", "1")
		var got []string
		for place := ""; len(got) <= len(l.want); {
			page := args
			if place != "" {
				page = append(slices.Clone(args), "--after", place)
			}
			stdout, _ := list(append(page, "-o", "json")...)
			elements, next := readList(t, stdout, l)
			if len(elements) > 1 {
				t.Errorf("%s: %d elements", page, len(elements))
			}
			got = append(got, elements...)
			for _, output := range []string{"table", "jsonl"} {
				_, note := list(append(slices.Clone(page), "-o", output)...)
				const text = " more: continue with --after "
				if isNoted := strings.Contains(note, text); isNoted != (next != "") {
					t.Errorf("%s -o %s: next is %q, the note %q", page, output, next, note)
				}
			}
			if next == "" || next == place {
				break
			}
			place = next
		}
		if diff := difference.Of(l.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
}

// readList returns the names of the elements of a list, and its member next.
func readList(t *testing.T, text string, l pagedList) (names []string, next string) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var answer map[string]any
	if err := decoder.Decode(&answer); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	elements, _ := answer[l.list].([]any)
	for _, e := range elements {
		var parts []string
		for path := range strings.SplitSeq(l.name, ",") {
			value := e
			for member := range strings.SplitSeq(path, ".") {
				object, _ := value.(map[string]any)
				value = object[member]
			}
			parts = append(parts, fmt.Sprint(value))
		}
		names = append(names, strings.Join(parts, " "))
	}
	if answer["next"] != nil {
		next = fmt.Sprint(answer["next"])
	}
	return names, next
}
