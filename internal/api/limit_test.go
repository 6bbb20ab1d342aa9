package api_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/ledger"
)

// limit is a limit in an answer.
type limit struct {
	Name       string
	Kinds      map[ledger.Kind]int
	Per, Rate  string
	MaxRunning *int `json:"max_running"`
	Burst      int
	Running    int
	Oldest     string
	Actor      string
}

func (l limit) String() string {
	running := "any"
	if l.MaxRunning != nil {
		running = fmt.Sprint(*l.MaxRunning)
	}
	return fmt.Sprintf("%s %v %s %d/%s %s %d %s", l.Name, l.Kinds, l.Per, l.Running, running, l.Rate, l.Burst, l.Actor)
}

// A limit is set, replaced, listed with its use and removed, each by an operator with a record of the reason. The
// same request twice has the same effect.
func TestLimits(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	put := func(name, body string, status int) limit {
		t.Helper()
		return decode[limit](s, s.call(api.Operator, "PUT", "/v1/limits/"+name, body), status)
	}
	for _, call := range []struct {
		name, body, want string
		status           int
	}{
		{name: "a.b", body: `{"max_running":2,"reason":"the partner asked"}`, status: 201,
			want: "a.b map[a.b:1]  0/2  0 a-operator"},
		{name: "partner-x", body: `{"kinds":{"a.b":2,"c":1},"rate":"10/m","burst":5,"per":"partition"}`, status: 201,
			want: "partner-x map[a.b:2 c:1] partition 0/any 10/m 5 a-operator"},
		{name: "partner-x", body: `{"kinds":{"c":0},"rate":"100/h","max_running":0}`, status: 200,
			want: "partner-x map[c:1]  0/0 100/h 100 a-operator"},
		{name: "partner-x", body: `{"kinds":{"c":0},"rate":"100/h","max_running":0}`, status: 200,
			want: "partner-x map[c:1]  0/0 100/h 100 a-operator"},
	} {
		if got := put(call.name, call.body, call.status).String(); got != call.want {
			t.Errorf("%s: got %q, want %q", call.body, got, call.want)
		}
	}
	s.call(api.Producer, "POST", "/v1/tasks", `{"kind":"a.b","biz_id":"1"}`)
	_, err := ledger.Append(t.Context(), s.owner(), ledger.AppendRequest{Key: ledger.Key{Kind: "a.b", BizID: "1"},
		Expected: 1, Type: ledger.EventStarted, Actor: "w"})
	if err != nil {
		t.Fatal(err)
	}
	page := decode[struct{ Items []limit }](s, s.call(api.Viewer, "GET", "/v1/limits", ""), 200)
	if len(page.Items) != 2 || page.Items[0].Running != 1 || page.Items[0].Oldest == "" {
		t.Errorf("got %v", page)
	}
	for _, want := range []bool{true, false} {
		answer := s.call(api.Operator, "DELETE", "/v1/limits/a.b?reason=it+is+faster", "")
		if got := decode[struct{ Changed bool }](s, answer, 200); got.Changed != want {
			t.Errorf("got %s, want %t", answer.body, want)
		}
	}
	rows, _ := s.owner().Query(t.Context(), `
		select concat_ws(' ', actor, data->>'action', data->>'reason', data->'detail'->>'limit')
		  from taskledger.event where kind = 'taskledger.operation' and version = 1 order by position`)
	records, err := pgx.CollectRows(rows, pgx.RowTo[string])
	want := []string{"a-operator limit.set the partner asked a.b", "a-operator limit.set partner-x",
		"a-operator limit.set partner-x", "a-operator limit.set partner-x", "a-operator limit.remove it is faster a.b"}
	if err != nil || !slices.Equal(records, want) {
		t.Errorf("on record: %q, %v, want %q", records, err, want)
	}
}

// An invalid limit is refused with its field, and changes nothing.
func TestInvalidLimits(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for _, call := range []struct{ name, body, field, detail string }{
		{name: "a.b", body: `{}`, field: "limit", detail: "must have a maximum of running tasks or a rate"},
		{name: "a.b", body: `{"max_running":10001}`, field: "max_running", detail: "must be between 0 and 10000"},
		{name: "a.b", body: `{"max_running":"5"}`, field: "max_running", detail: "must not be a JSON string"},
		{name: "a.b", body: `{"rate":"10"}`, field: "rate", detail: "as in 100/m"},
		{name: "a.b", body: `{"rate":"10/m","burst":3}`, field: "burst", detail: "divide the rate of 10"},
		{name: "a.b", body: `{"max_running":1,"burst":3}`, field: "burst", detail: "needs a rate"},
		{name: "a.b", body: `{"max_running":1,"per":"tenant"}`, field: "per", detail: "must be partition or order_key"},
		{name: "a.b", body: `{"max_running":1,"kinds":{}}`, field: "kinds", detail: `as in {"a.b": 1}`},
		{name: "a.b", body: `{"max_running":1,"kinds":{"a b":1}}`, field: "kind", detail: ""},
		{name: "a.b", body: `{"max_running":1,"kinds":{"c":2}}`, field: "weight of c", detail: "needs a rate"},
		{name: "a.b", body: `{"max_running":1,"name":"c"}`, field: "name", detail: ""},
		{name: "a.b", body: ``, field: "body", detail: ""},
		{name: "taskledger.alarm", body: `{"max_running":1}`, field: "name of a limit",
			detail: "must not be one of taskledger itself"},
		{name: "x", body: `{"max_running":1,"kinds":{"taskledger.alarm":1}}`,
			field: "kind", detail: "must not be one of taskledger itself"},
		{name: "a%20b", body: `{"max_running":1}`, field: "name of a limit", detail: "must have the form of a kind"},
		{name: "%2F", body: `{"max_running":1}`, field: "name of a limit", detail: "must have the form of a kind"},
		{name: "a.b", body: `{"max_running":1,"reason":"` + strings.Repeat("x", 5000) + `"}`,
			field: "reason", detail: "at most 4096 bytes"},
	} {
		p := s.wantProblem(s.call(api.Operator, "PUT", "/v1/limits/"+call.name, call.body), 400, "invalid")
		if p.Field != call.field || !strings.Contains(p.Detail, call.detail) {
			t.Errorf("%s %s: %s: %s, want %s: %s", call.name, call.body, p.Field, p.Detail, call.field, call.detail)
		}
	}
	a := s.call(api.Operator, "PUT", "/v1/limits/a.b", `{"max_running":1}`, "If-Match", "*")
	s.wantProblem(a, 400, "invalid")
	s.wantProblem(s.call(api.Operator, "DELETE", "/v1/limits/a%00b", ""), 400, "invalid")
	a = s.call(api.Operator, "GET", "/v1/limits/a.b", "")
	if a.status != 405 || a.header.Get("Allow") != "PUT, DELETE" {
		t.Errorf("%d, Allow: %s", a.status, a.header.Get("Allow"))
	}
	page := decode[struct{ Items []limit }](s, s.call(api.Viewer, "GET", "/v1/limits", ""), http.StatusOK)
	if len(page.Items) != 0 {
		t.Errorf("got %v", page.Items)
	}
}

// A caller that is limited to kinds neither sees nor changes a limit that another kind shares.
func TestLimitsOfALimitedCaller(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	_, secret, err := api.CreateToken(t.Context(), s.db, api.TokenOptions{Name: "shop", Role: api.Operator,
		Kinds: []string{"a.*"}})
	if err != nil {
		t.Fatal(err)
	}
	s.tokens["shop"] = secret
	for name, body := range map[string]string{"mixed": `{"max_running":1,"kinds":{"a.b":1,"c":1}}`,
		"own": `{"max_running":1,"kinds":{"a.b":1}}`} {
		if a := s.call(api.Operator, "PUT", "/v1/limits/"+name, body); a.status != http.StatusCreated {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	replaced := s.call("shop", "PUT", "/v1/limits/mixed", `{"max_running":9,"kinds":{"a.b":1}}`)
	s.wantProblem(replaced, 403, "kind_forbidden")
	s.wantProblem(s.call("shop", "PUT", "/v1/limits/c", `{"max_running":9}`), 403, "kind_forbidden")
	s.wantProblem(s.call("shop", "DELETE", "/v1/limits/mixed", ""), 403, "kind_forbidden")
	page := decode[struct{ Items []limit }](s, s.call("shop", "GET", "/v1/limits", ""), 200)
	if len(page.Items) != 1 || page.Items[0].Name != "own" {
		t.Errorf("got %v", page.Items)
	}
	if a := s.call("shop", "DELETE", "/v1/limits/own", ""); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	page = decode[struct{ Items []limit }](s, s.call(api.Viewer, "GET", "/v1/limits", ""), 200)
	if len(page.Items) != 1 || page.Items[0].Name != "mixed" || *page.Items[0].MaxRunning != 1 {
		t.Errorf("got %v", page.Items)
	}
}
