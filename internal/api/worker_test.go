package api_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/taskledger/taskledger/api/client"
	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/workers"
)

// The list of workers has the load of each kind, in pages of every size, and a caller that is limited to kinds gets
// these alone. A malformed lease hides no other worker.
func TestWorkers(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	_, secret, err := api.CreateToken(t.Context(), s.db, api.TokenOptions{Name: "limited", Role: api.Viewer,
		Kinds: []string{"b"}})
	if err != nil {
		t.Fatal(err)
	}
	s.tokens["limited"] = secret
	for id, detail := range map[string]string{
		"w-1": `{"kinds":["a","b"],"shards":"0-15",` +
			`"load":{"b":{"slots":8,"in_flight":3,"running":7,"overdue":2,"per_minute":12.5}}}`,
		"w-2": `{"kinds":["a"],"shards":"0-15"}`,
		"w-3": `{"kinds":["a"],"shards":"many"}`,
		"w-4": `{"kinds":["b"],"shards":"all"}`,
	} {
		_, err := s.owner().Exec(t.Context(), `insert into taskledger.lease (name, holder, alive_until, detail)
			values ('worker/' || $1::text, $1::text, now() + interval '1 hour', $2::text::json)`, id, detail)
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		role api.Role
		want []string
	}{
		{role: api.Viewer, want: []string{
			"w-1 a 0-15 <nil>", "w-1 b 0-15 &{8 3 7 2 12.5}", "w-2 a 0-15 <nil>", "w-4 b all <nil>",
		}},
		{role: "limited", want: []string{"w-1 b 0-15 &{8 3 7 2 12.5}", "w-4 b all <nil>"}},
	} {
		for limit := 1; limit <= 5; limit++ {
			var got []string
			for next := "?"; next != ""; {
				page := decode[client.List[workers.Worker]](s,
					s.call(test.role, "GET", fmt.Sprintf("/v1/workers%slimit=%d", next, limit), ""), http.StatusOK)
				for _, w := range page.Items {
					for _, k := range w.Kinds {
						got = append(got, fmt.Sprintf("%s %s %s %v", w.ID, k.Kind, k.Shards, k.Load))
					}
				}
				if next = ""; page.Next != "" {
					next = "?after=" + page.Next + "&"
				}
			}
			if diff := difference.Of(test.want, got); diff != "" {
				t.Errorf("role %s in pages of %d (-want +have):\n%s", test.role, limit, diff)
			}
		}
	}
}

// A process of serve lists the names of the workers that ask it.
func TestNamesOfWorkers(t *testing.T) {
	t.Parallel()
	s := serveWork(t, 30*time.Second)
	none := 0.0
	for i, name := range []string{"host-2", "host-1@eu", "host-2"} {
		ask := askFor(i+1, "a.b")
		ask.Worker, ask.Wait = name, &none
		s.ask(ask)
	}
	var names []string
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		page := decode[client.List[workers.Worker]](s.server,
			s.call(api.Viewer, "GET", "/v1/workers", ""), http.StatusOK)
		if len(page.Items) == 1 {
			names = page.Items[0].Names
		}
		if slices.Equal(names, []string{"host-1@eu", "host-2"}) {
			break
		}
		if time.Since(begun) > time.Minute {
			t.Fatalf("names %q", names)
		}
	}
}
