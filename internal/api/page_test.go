package api_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// listings are the calls that answer with a page by name.
var listings = []string{"/v1/kinds", "/v1/limits", "/v1/schedules", "/v1/subscribers"}

// fill inserts kinds with counts, pauses and limits, limits of starts, schedules and subscribers, numbered from first
// up to last.
func (s *server) fill(first, last int) {
	s.t.Helper()
	if first == 0 {
		if err := feed.Seek(s.t.Context(), s.db, "s", feed.After(0)); err != nil {
			s.t.Fatal(err)
		}
	}
	for _, statement := range []string{
		`insert into taskledger.task_count (kind, state, n, value)
		   select 'a.k' || to_char(i, 'FM0000'), s.state, 1, i % 3
		     from generate_series($1::integer, $2::integer) i
		    cross join (values ('available'::taskledger.task_state), ('succeeded')) s(state)
		    where i % 5 < 3`,
		`insert into taskledger.pause (kind, actor, reason)
		   select 'a.k' || to_char(i, 'FM0000'), 'a', 'b' from generate_series($1::integer, $2::integer) i
		    where i % 5 = 3`,
		`insert into taskledger.kind_limit (kind, max_waiting, policy, retry_after_ms, actor)
		   select 'a.k' || to_char(i, 'FM0000'), 9, 'reject', 0, 'a'
		     from generate_series($1::integer, $2::integer) i where i % 5 in (2, 4)`,
		`insert into taskledger.start_limit (name, max_running, actor)
		   select 'l' || to_char(i, 'FM0000'), 5, 'a' from generate_series($1::integer, $2::integer) i`,
		`insert into taskledger.limited_kind (kind, name)
		   select 'a.k' || to_char(i, 'FM0000'), 'l' || to_char(i, 'FM0000')
		     from generate_series($1::integer, $2::integer) i`,
		`insert into taskledger.schedule (name, kind, every_ms, anchor, missed, missed_limit, overlap, actor)
		   select 's' || to_char(i, 'FM0000'), 'a.k' || to_char(i, 'FM0000'), 60000, now(), 'one', 1, 'allow', 'a'
		     from generate_series($1::integer, $2::integer) i`,
		`insert into taskledger.cursor (reader, n, seen, seen_top, seen_bound, until, top, bound, after_position,
		                                audited, origin, timeline, mark, login)
		   select 'subscriber/t' || to_char(i, 'FM0000'), c.n, c.seen, c.seen_top, c.seen_bound, c.until, c.top,
		          c.bound, c.after_position, c.audited, c.origin, c.timeline, c.mark, c.login
		     from taskledger.cursor c, generate_series($1::integer, $2::integer) i where c.reader = 'subscriber/s'`,
	} {
		if _, err := s.owner().Exec(s.t.Context(), statement, first, last); err != nil {
			s.t.Fatalf("%v: %s", err, statement)
		}
	}
	if _, err := s.owner().Exec(s.t.Context(), `analyze`); err != nil {
		s.t.Fatal(err)
	}
}

// names returns the names of a whole list, read in pages.
func (s *server) names(role api.Role, path string, limit int) (names []string) {
	s.t.Helper()
	for next := "?"; next != ""; {
		page := decode[struct {
			Items []struct {
				Kind, Name string
				Schedule   struct{ Name string }
			}
			Next string
		}](s, s.call(role, "GET", fmt.Sprintf("%s%slimit=%d", path, next, limit), ""), http.StatusOK)
		if len(page.Items) > limit || page.Next != "" && len(page.Items) < limit {
			s.t.Fatalf("%s: %d values in a page of %d, next %s", path, len(page.Items), limit, page.Next)
		}
		for _, v := range page.Items {
			switch path {
			case "/v1/kinds":
				names = append(names, v.Kind)
			case "/v1/schedules":
				names = append(names, v.Schedule.Name)
			default:
				names = append(names, v.Name)
			}
		}
		next = ""
		if page.Next != "" {
			if last := names[len(names)-1]; page.Next != last {
				s.t.Fatalf("%s: next is %s after %s", path, page.Next, last)
			}
			next = "?after=" + page.Next + "&"
		}
	}
	return names
}

// Pages of every size have each kind, limit, schedule and subscriber once and in order. A kind whose totals are all
// zero is not in the list, and a caller that is limited to kinds gets no name of another one.
func TestPagesByName(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	_, secret, err := api.CreateToken(t.Context(), s.db, api.TokenOptions{Name: "limited", Role: api.Viewer,
		Kinds: []string{"a.k0007", "a.k0008", "a.k0032"}})
	if err != nil {
		t.Fatal(err)
	}
	s.tokens["limited"] = secret
	s.fill(0, 39)
	want := map[string][]string{"/v1/subscribers": {"s"}}
	for i := range 40 {
		if kind := i % 5; kind >= 2 || i%3 != 0 {
			want["/v1/kinds"] = append(want["/v1/kinds"], fmt.Sprintf("a.k%04d", i))
		}
		want["/v1/limits"] = append(want["/v1/limits"], fmt.Sprintf("l%04d", i))
		want["/v1/schedules"] = append(want["/v1/schedules"], fmt.Sprintf("s%04d", i))
		want["/v1/subscribers"] = append(want["/v1/subscribers"], fmt.Sprintf("t%04d", i))
	}
	for _, path := range listings {
		for _, limit := range []int{1, 2, 7, len(want[path]) - 1, len(want[path]), len(want[path]) + 1} {
			if diff := difference.Of(want[path], s.names(api.Viewer, path, limit)); diff != "" {
				t.Errorf("%s in pages of %d (-want +have):\n%s", path, limit, diff)
			}
		}
	}
	for path, prefix := range map[string]string{"/v1/kinds": "a.k", "/v1/limits": "l", "/v1/schedules": "s"} {
		for _, limit := range []int{1, 2, 3} {
			want := []string{prefix + "0007", prefix + "0008", prefix + "0032"}
			if diff := difference.Of(want, s.names("limited", path, limit)); diff != "" {
				t.Errorf("%s of a limited caller in pages of %d (-want +have):\n%s", path, limit, diff)
			}
		}
	}
}

// A page of schedules with large args ends after about eight MiB, and the pages together have each schedule once.
func TestPageOfLargeSchedules(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	const schedules = 60
	if _, err := s.owner().Exec(t.Context(), `
		insert into taskledger.schedule (name, kind, args, every_ms, anchor, missed, missed_limit, overlap, actor)
		select 's' || to_char(i, 'FM0000'), 'a.b', to_json(repeat('x', 250000)), 60000, now(), 'one', 1, 'allow', 'a'
		  from generate_series(1, $1::integer) i`, schedules); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	next := "?"
	for pages := 0; next != ""; pages++ {
		answer := s.call(api.Viewer, "GET", "/v1/schedules"+next+"limit=1000", "")
		page := decode[struct {
			Items []struct{ Schedule struct{ Name string } }
			Next  string
		}](s, answer, http.StatusOK)
		if len(page.Items) > schedules*3/4 || pages > 3 {
			t.Fatalf("page %d has %d of %d schedules", pages, len(page.Items), schedules)
		}
		for _, v := range page.Items {
			names[v.Schedule.Name] = true
		}
		if next = page.Next; next != "" {
			next = "?after=" + next + "&"
		}
	}
	if len(names) != schedules {
		t.Errorf("the pages have %d of %d schedules", len(names), schedules)
	}
}

// A page by name costs the same with many values as with few.
func TestPagesByNameAreBounded(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t, databaseRoles...)
	config := db.Config()
	made := &statements{all: map[string][]any{}}
	config.ConnConfig.Tracer = made
	traced, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(traced.Close)
	s := serveOn(t, traced, nil)
	cost := func() map[string]int {
		blocks := map[string]int{}
		for _, path := range listings {
			made.mu.Lock()
			clear(made.all)
			made.mu.Unlock()
			s.call(api.Viewer, "GET", path+"?limit=5", "")
			made.mu.Lock()
			all := maps.Clone(made.all)
			made.mu.Unlock()
			for _, sql := range slices.Sorted(maps.Keys(all)) {
				if strings.Contains(sql, "taskledger") && !strings.Contains(sql, "taskledger.token") {
					blocks[path] += plantest.Blocks(t, db, nil, sql, all[sql]...)
				}
			}
		}
		return blocks
	}
	s.fill(0, 499)
	few := cost()
	s.fill(500, 4999)
	many := cost()
	t.Logf("blocks of a page: %v with 500 values, %v with 5,000", few, many)
	for _, path := range listings {
		if few[path] == 0 || many[path] > few[path]+few[path]/2+20 {
			t.Errorf("%s: %d blocks with 5,000 values, %d with 500", path, many[path], few[path])
		}
	}
}
